"""NEXMark."""
