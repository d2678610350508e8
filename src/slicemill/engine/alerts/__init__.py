"""Alerts: conditions over figures, and rows of queries, told to webhooks."""
