"""Runtime: the driver, its workers, running tasks and running streams."""
