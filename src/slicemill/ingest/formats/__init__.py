"""File formats: parse bytes and columns of a source without the JVM."""
