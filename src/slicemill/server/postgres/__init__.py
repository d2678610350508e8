"""PostgreSQL wire protocol (version 3), for psql and PostgreSQL drivers."""
