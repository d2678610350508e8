"""Models as graphs of the paper's operators (C3-C15): data, construction, execution."""
