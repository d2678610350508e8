"""Where tuples come from: readers and generators without Spark."""
