"""The reference execution model: tuple at a time, one process, virtual or real clock.

It defines what a query means at each moment (spec M14-M26), is what the vectorised kernels are tested
against, and is the simulator behind the scheduling experiments.

`engine` is the way in. A graph (`graph`) of operators (`operator`, `stateless`, `join`, `window_*` ...) over
buffers (`buffers`) is run step by step (`cycle`), each next step selected by the rules (`nos`) that the state
table (`state_table`) binds. Tuples and time come in through sources (`sources`, `ets`, `intake`); registers
(`tsm`) say when an operator may go on, and time travels as `punctuation` or over the arcs of the enhanced
graph (`eqg`).
"""
