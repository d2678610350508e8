"""The lab: one module per published experiment, each with its set-up, its run, its claims and its plot.

A module named `<family>_e<number>` holds one `EXPERIMENT`; its id is the name with hyphens and a capital E
(`mill_e1` is `mill-E1`). `slicemill lab run ID` runs it and says which claims hold here.
"""
