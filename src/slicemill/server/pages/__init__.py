"""What single pages of the console show, worked out from a mill and a sample of it."""
