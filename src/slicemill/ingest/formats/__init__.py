"""File formats: parsers of bytes and columns, without the JVM."""
