"""Generators of synthetic streams: NEXMark, RFID readings, a highway."""
