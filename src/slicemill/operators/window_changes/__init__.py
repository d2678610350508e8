"""Windows whose results are told before they end, and corrected after it."""
