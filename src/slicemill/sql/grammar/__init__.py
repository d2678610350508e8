"""Grammar of ESL: a recursive-descent parser, with a module for each part of the language.

Functions parse expressions, queries, statements and aggregate bodies from a Cursor to sqlglot nodes. They
replace sqlglot's own parser, which accepts every SQL dialect and tolerates many errors. This parser reports
an error where it occurs, with the words that could have followed.
"""
