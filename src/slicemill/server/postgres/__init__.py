"""PostgreSQL wire protocol (version 3), for psql and PostgreSQL drivers.

`wire` encodes messages, `values` encodes results, and `parameters` decodes parameters. `session` serves one
connection and answers the statements that clients send to every PostgreSQL server on connect.
"""
