"""Codec of operator state: versioned JSON and buffers, without pickle.

    encoded = encode(value)                       # fast: copies only mutable data
    decode(encoded.tree, encoded.buffers())       # the same value again

The tree is human-readable JSON. Numbers, strings and lists stand for themselves. Every other value is an
object with one key for its type:

    {"$tuple": [1, 2.5]}   {"$map": {"a": 1}}   {"$dict": [[1, "one"]]}   {"$float": "7ff8000000000000"}
    {"$array": {"dtype": "<i8", "shape": [3], "buffer": 0}}               {"$table": 1}
    {"column": {"name": "price", "type": {"type": {...}}}}                a registered class, by value
    {"$ref": 4}                                                           entry 4 of "objects"

The tree has four parts. `classes` has the registered classes with their versions. `objects` has
registered objects that may be referenced several times, and deeply nested values, so that the depth is
bounded also for long linked structures. `value` is the value. `buffers` is the number of buffers.
Identity is kept for registered objects, arrays and tables, not for lists and dictionaries.
"""
