"""One multi-way join on many machines, as the thesis has it: slices of all streams on a ring (S25-S43).

    arrivals ──► start node ──► node ──► node ──► … ──► back to the start node
                 inserts the tuple, probes; partial results go once round and grow at every node

`ring` runs it in virtual time, with the costs of a network, or by a random schedule for the theorems. `node`
has the rules of one machine. `placement` says which node stores a tuple: slices that tuples pass through
(PSP), or roles that pass over tuples that stay (PSP-D). `relocation` changes the number of nodes. `atr` and
`ctr` are the two published rivals, behind the same face. `machines` has the nodes' queues and clocks.
"""
