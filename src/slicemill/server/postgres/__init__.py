"""PostgreSQL's wire protocol (version 3): psql and drivers of PostgreSQL talk to a slicemill server.

`wire` has messages as bytes, `values` values as PostgreSQL writes them, `session` one connection,
`compatibility` what clients ask of a PostgreSQL server before they begin.
"""
