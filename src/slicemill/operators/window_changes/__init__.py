"""Windows with early and late emissions (EMIT EARLY … LATE …)."""
