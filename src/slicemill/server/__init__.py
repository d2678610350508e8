"""The server: one mill that many people use at once (M39-M40).

    REST, live results ─┐
    PostgreSQL protocol ─┼─► MillService ─► Mill    one set of calls behind all ways in
    shell, console ──────┘

`service` has the calls; `http` and `postgres` put them on the network. Nothing here touches rows on their way
through queries: results are read from the logs of the home, by epoch.
"""
