"""Planning of window joins that share sliced state (S15-S23, S46-S49)."""
