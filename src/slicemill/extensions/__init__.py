"""Special subjects, registered through the same hooks that third-party packages have."""
