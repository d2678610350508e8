"""What becomes of queries and streams: statements that steer, replace and alter them."""
