"""Models as graphs of the paper's operators (C3-C15): as data, blocking and incremental, and executed as they stand."""
