"""File formats: parsers of CSV, JSON and Parquet that do not use Spark."""
