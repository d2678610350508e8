"""Multi-way join on a ring of machines with sliced state (S25-S43).

    arrivals ──► start node ──► node ──► node ──► … ──► back to the start node
                 inserts the tuple, probes; partial results go once round and grow at every node

This follows the thesis. `ring` runs in virtual time with network costs, or with a random schedule to test
the theorems. `node` has the rules of one machine. `placement` chooses the node that stores a tuple:
slices through which tuples move (PSP), or moving roles and fixed tuples (PSP-D). `relocation` changes the
number of nodes. `atr` and `ctr` are two published alternatives with the same interface. `machines` has
the nodes' queues and clocks.
"""
