"""PostgreSQL wire protocol (version 3), for psql and PostgreSQL drivers.

`wire` encodes messages and `values` encodes values. `session` serves one connection. `compatibility` answers
statements that clients send to every PostgreSQL server on connect.
"""
