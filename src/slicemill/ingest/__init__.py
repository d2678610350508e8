"""From sources to stream logs: readers, order, lateness and watermarks."""
