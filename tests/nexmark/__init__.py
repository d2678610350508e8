"""NEXMark queries of examples/nexmark."""
