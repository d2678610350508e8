"""Experiments of the mill: segments of steepest slope, enabling timestamps, panes, RFID, classification."""
