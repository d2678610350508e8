"""The scalar functions and operators, one topic a module."""
