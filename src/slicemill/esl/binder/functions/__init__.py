"""Scalar functions of users: CREATE FUNCTION, and what a call of one stands for."""
