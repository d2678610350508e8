"""The engine: the mill, its dispatcher, its long-running workers, and the units that they run."""
