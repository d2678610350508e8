"""Alerts: conditions over metrics, and rows of queries, sent to webhooks."""
