"""Lines from TCP sockets."""
