"""Runtime: the driver, its workers, and the units and streams that they run."""
