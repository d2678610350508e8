"""`slicemill sql`: a shell for a server, over the client; it loads neither Spark nor the engine."""
