"""The counters around a block: what changed meanwhile, and not what was before."""

from __future__ import annotations

from pathlib import Path

from pytest_modelperf.profiler.worker.process import Meter


def test_the_group_counts_that_was_halted_longest_meanwhile(tmp_path: Path) -> None:
    """A group above it may have been halted for longer before."""
    own, above, no = (tmp_path / name for name in ("own", "above", "no"))
    own.write_text("throttled_usec 1\n")
    above.write_text("throttled_usec 900\n")
    meter = Meter((str(own), str(above), str(no)), None)
    before = meter.read()
    own.write_text("throttled_usec 51\n")
    above.write_text("throttled_usec 902\n")
    assert meter.since(before)["throttled_ns"] == 50_000
