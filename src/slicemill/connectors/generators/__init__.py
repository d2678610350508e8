"""Generators of streams: NEXMark, RFID readings, a highway."""
