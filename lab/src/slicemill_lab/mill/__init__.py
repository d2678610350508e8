"""Experiments on execution: steepest segments, enabling timestamps, panes, RFID, classification."""
