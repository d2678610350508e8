"""Engine: the mill, its dispatcher, its workers, and the units they run."""
