"""File formats: bytes and columns of a source to rows of a declared schema, without the JVM."""
