"""Codec of operator state in checkpoints: versioned JSON and buffers, without pickle.

    encoded = encode(value)                       # fast: copies only mutable data
    decode(encoded.tree, encoded.buffers())       # returns an equal value

The tree is human-readable JSON. Numbers, strings and lists stand for themselves. Every other value is an
object with one key for its type:

    {"$tuple": [1, 2.5]}   {"$map": {"a": 1}}   {"$dict": [[1, "one"]]}   {"$float": "7ff8000000000000"}
    {"$array": {"dtype": "<i8", "shape": [3], "buffer": 0}}               {"$table": 1}
    {"column": {"name": "price", "type": {"type": {...}}}}                a registered class, by value
    {"$ref": 4}                                                           reference to entry 4 of "objects"

The tree has four parts. `classes` has the names and versions of the registered classes. `objects` has the
registered objects, which may be referenced several times, and values at a nesting depth of more than 40, so
that long linked structures do not nest deeply. `value` is the value. `buffers` is the number of buffers.
After decoding, references to the same registered object, array or table still lead to one object. Lists and
dictionaries are copied for each reference.
"""
