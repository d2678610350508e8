"""Tools for columns and tables that several operators use: keys, order, slices, rows."""
