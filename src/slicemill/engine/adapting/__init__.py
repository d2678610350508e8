"""What follows the load while queries run: where cells are, and how many of them there are."""
