"""SELECT DISTINCT: the first of equal rows."""
