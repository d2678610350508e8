"""Closed forms and plans of the published state-slice analysis (S15, S16, S35, S51)."""
