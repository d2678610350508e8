"""File formats: parsers of bytes and columns of a source, without the JVM."""
