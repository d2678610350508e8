"""ESL's syntax: lexer, token cursor, grammar, syntax nodes, and a printer back to text."""
