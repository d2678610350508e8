"""GROUP BY over windows of FROM that panes do not support."""
