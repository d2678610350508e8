"""RFID algorithms: cases, door alarms, denoising, deduplication (M42-M47).

These are the published algorithms over arrays, one module each. The tests compare the aggregates of
`examples/rfid.esl` with them, and the experiments mill-E14 and mill-E15 run them. Times are microseconds and
never decrease. A key is any integer that stands for a tag, or for a reader and a tag.
"""
