"""Reference engine: tuple at a time, one process, virtual or real clock.

The reference engine defines the results of queries at each point in time (spec M14-M26). The vectorized
kernels are tested against it, and the scheduling experiments use it as a simulator.

`engine` is the entry point. `cycle` runs a graph (`graph`) of operators (`operators`) over buffers
(`buffers`) step by step. The rules of `nos`, bound by the state table (`state_table`), select each next
step. Tuples and time enter through sources (`sources`, `ets`, `intake`). Registers (`tsm`) determine when an
operator may continue. Enabling timestamps travel as `punctuation` or over the arcs of the enhanced graph
(`eqg`).
"""
