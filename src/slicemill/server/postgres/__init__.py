"""PostgreSQL wire protocol (version 3), for psql and PostgreSQL drivers.

`wire` encodes messages and `values` encodes values. `session` serves one connection. `compatibility` answers
what clients ask of a PostgreSQL server on connect.
"""
