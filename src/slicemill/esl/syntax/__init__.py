"""ESL's syntax: tokens, a cursor over them, the grammar, the syntax nodes, and a printer back to text."""
