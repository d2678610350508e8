"""Recordings of eight pumps, some of which wear out: SYNTHETIC, no pump was recorded.

A recording goes by a text, `seed:wear`, in place of the name of a file; to look at it is to make a second of
sound of it and to find its spectrum, which is the work that a classifier saves where it does not look.

    python examples/pumps/recordings.py              # writes history.csv and sound.csv anew
    python examples/pumps/recordings.py --compare    # looks at all values, and at a quarter: errors and CPU
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa

HERE = Path(__file__).parent
PUMPS, FEATURES = 8, {"hum": (40, 60), "rattle": (800, 1200), "whine": (2000, 3000)}
RATE, FAILING = 8000, 0.5  # samples of a second; more wear than this is a failure to come
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def level(feature: str, keys: pa.Array, recordings: pa.Array) -> list[float | None]:
    """The loudness of a band of the spectrum, in decibels: this is what looking costs."""
    del keys
    return [None if text is None else _level(feature, text) for text in recordings.to_pylist()]


def _level(feature: str, text: str) -> float:
    seed, _, wear = text.partition(":")
    random, seconds = np.random.default_rng(int(seed)), np.arange(RATE) / RATE
    sound = np.sin(2 * np.pi * 50 * seconds) + random.normal(0, 0.3, RATE)
    for tone in random.uniform(800, 1200, 20):  # loose parts
        sound += 0.15 * float(wear) * np.sin(2 * np.pi * tone * seconds + random.uniform(0, 6))
    for tone in random.uniform(2000, 3000, 20):  # dry bearings
        sound += 0.1 * float(wear) ** 2 * np.sin(2 * np.pi * tone * seconds + random.uniform(0, 6))
    power = np.abs(np.fft.rfft(sound * np.hanning(RATE))) ** 2
    low, high = FEATURES[feature]
    return float(10 * np.log10(power[low:high].mean()))


def wear_of(pump: int, unit: int) -> float:
    """Each pump wears out, is mended, and begins anew."""
    return (unit * (1 + pump % 3) / 60 + pump / PUMPS) % 1.0


def main() -> None:
    random = np.random.default_rng(7)
    with (HERE / "history.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for unit in range(90):
            for pump in range(PUMPS):
                text = f"{random.integers(10**6)}:{wear_of(pump, unit):.3f}"
                values = [f"{_level(feature, text):.2f}" for feature in FEATURES]
                writer.writerow([pump, *values, str(wear_of(pump, unit) > FAILING).lower()])
    with (HERE / "sound.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for unit in range(90, 150):
            for pump in range(PUMPS):
                at = BEGIN + timedelta(seconds=10 * unit + pump)
                texts = [f"{random.integers(10**6)}:{wear_of(pump, unit):.3f}" for _ in FEATURES]
                writer.writerow([pump, at.strftime("%Y-%m-%d %H:%M:%S"), *texts])


def compare() -> None:
    """Both ways, over workers in this process."""
    from slicemill.runtime.workers.inline import InlinePool
    from slicemill.runtime.workers.sharing import HANDLER
    from slicemill.testing import open_mill

    script = (HERE / "pumps.esl").read_text()
    everything = PUMPS * len(FEATURES)
    for capacity, policy in (
        (6, "bff"),
        (everything, "bff"),
        (6, "bff"),
        (6, "random"),
    ):  # the first one compiles
        with (
            tempfile.TemporaryDirectory() as home,
            open_mill(home=Path(home) / "home", folder=HERE.parents[1], pool=InlinePool(1, HANDLER)) as mill,
        ):
            mill.execute(
                script.replace("capacity = 6", f"capacity = {capacity}").replace("'bff'", f"'{policy}'")
            )
            begin = time.process_time()
            mill.drain()
            spent = time.process_time() - begin
            rows = [timed.row for timed in mill.queries["decisions"].timed_rows()]
        units = [(row[0], round((row[1] / 1e6 - BEGIN.timestamp()) / 10) - 1, row[2]) for row in rows]
        wrong = sum(said != (wear_of(pump, unit) > FAILING) for pump, unit, said in units)
        found = {"cpu_seconds": round(spent, 2), "errors": round(wrong / len(units), 3)}
        print(json.dumps({"looked_at": capacity, "policy": policy, **found}))


if __name__ == "__main__":
    compare() if "--compare" in sys.argv[1:] else main()
