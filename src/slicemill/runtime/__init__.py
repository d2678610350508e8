"""Runtime: the driver, its workers, running units and running streams."""
