"""Streams that are made: NEXMark, RFID readings, a highway."""
