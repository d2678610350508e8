"""Published figures, the rule to compare ours with them, and the verdicts."""
