"""Grammar of ESL: a recursive-descent parser, one module per part of the language."""
