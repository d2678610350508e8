"""TCP source: receives lines from a socket into a spool on disk."""
