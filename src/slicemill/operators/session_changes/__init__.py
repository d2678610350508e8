"""Sessions whose results are told before they end."""
