"""ESL's grammar: recursive descent over tokens, one module per part of the language.

Expressions, queries, statements and aggregate bodies are functions from a Cursor to sqlglot nodes. They
replace sqlglot's own parser, which reads every SQL there is and forgives much: here a mistake should be
found where it is made, with the words that could have stood there.
"""
