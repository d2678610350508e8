"""Hypothesis strategies for charts with exact numbers, so that equal slopes are exactly equal."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import strategies as st

from slicemill_lab.charts.charts import Piece

TIMES = st.builds(Fraction, st.integers(1, 12), st.integers(1, 4))
DROPS = st.builds(Fraction, st.integers(0, 8), st.integers(1, 3))
SIGNED_DROPS = st.builds(Fraction, st.integers(-8, 8), st.integers(1, 3))
PIECES = st.builds(Piece, TIMES, DROPS)
CHARTS = st.lists(st.builds(Piece, TIMES, SIGNED_DROPS), min_size=1, max_size=14)
