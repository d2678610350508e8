"""ESL, the SQL for streams: lexer, syntax tree, grammar, printer and diagnostics."""
