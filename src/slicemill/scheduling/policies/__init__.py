"""The policies: one module each, whose `priority` is a function of columns, greatest first.

The dispatcher, `slicemill simulate` and the simulator of the lab ask the same objects (`policy_registry`). A
tuple is a batch of one row. A priority keeps nothing between two decisions, so that one policy can be put in
the place of another at any time.
"""
