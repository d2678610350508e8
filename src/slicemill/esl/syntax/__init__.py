"""ESL's syntax: lexer, token cursor, grammar, syntax nodes and printer."""
