"""The engine: a mill, its dispatcher, the workers that stay, and what they run."""
