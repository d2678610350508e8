"""Server: many users share one engine over HTTP and the PostgreSQL protocol.

    REST, live results ─┐
    PostgreSQL protocol ─┼─► MillService ─► Mill    every client interface calls the same service
    shell, console ──────┘

`service` implements the calls, and `http` and `postgres` expose them on the network. The server takes no part
in query processing. The server reads results from the logs in the home directory, epoch by epoch (an epoch is
one commit).
"""
