"""Classification of many sources, of which only some can be observed (M49-M57).

There are n tasks, each with k features. Each feature arrives as a stream of its own. In a time unit at
most `capacity` of the n·k streams can be observed, yet each task needs a decision. Features that are not
observed are predicted by a Markov chain. A decision has an expected risk. A policy observes the streams
for which that lowers the risk most (`policies`).
"""
