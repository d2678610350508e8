"""Result of one query of a shared operator."""
