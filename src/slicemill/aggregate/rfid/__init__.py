"""RFID readings: grouped, watched at the door, freed of noise and of duplicates (M42-M47).

These are the published algorithms over arrays, one module each: what the aggregates of `examples/rfid.esl`
are tested against, and what the experiments mill-E14 and mill-E15 run. Times are microseconds and never
decrease; a key is any integer that stands for a tag, or for a reader and a tag.
"""
