"""Extensions for special subjects, registered through the hooks for third-party packages."""
