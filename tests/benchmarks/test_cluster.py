"""What the benchmark of a cluster makes of its runs."""

from __future__ import annotations

from collections.abc import Mapping

import cluster
import pytest
from results import Moment, Result

MOMENT = Moment(0.1, 5.0)


def result(*runs: Mapping[str, float]) -> Result:
    return Result(
        benchmark="cluster",
        command="",
        date="2026-01-31",
        seconds=1.0,
        is_complete=True,
        before=MOMENT,
        after=MOMENT,
        machine={},
        versions={},
        rows={"runs": runs},
    )


def run(workers: int, wall_seconds: float, client_peak_bytes: int = 10**8) -> dict[str, float]:
    return {
        "workers": workers,
        "cases": 1000,
        "case_seconds": 0.1 * workers,
        "wall_seconds": wall_seconds,
        "client_cpu_seconds": 2.0,
        "client_peak_bytes": client_peak_bytes,
        "scheduler_cpu_seconds": 3.0,
        "scheduler_peak_bytes": 10**8,
    }


@pytest.mark.parametrize(
    ("runs", "met"),
    [
        # Ten machines take 1 s a case: 100 s for 1,000 of them without any overhead.
        ([run(5, 100.0), run(10, 105.0)], [True, True, True]),
        ([run(5, 100.0), run(10, 112.0)], [False, True, False]),
        ([run(5, 112.0), run(10, 100.0)], [True, True, False]),
        ([run(10, 100.0, client_peak_bytes=2 * 10**9)], [True, False, True]),
    ],
)
def test_the_most_machines_are_held_to_the_overhead_and_all_to_the_rest(
    runs: list[dict[str, float]], met: list[bool]
) -> None:
    assert [each.is_met for each in cluster.expectations(result(*runs))] == met


def test_a_row_says_what_a_case_costs() -> None:
    (row,) = cluster.tables(result(run(10, 105.0)))["cluster"].splitlines()[2:]
    assert "| 1.0 s | 105 s | 95 % | 5.00 ms | 2.0 ms a case | 3.0 ms a case |" in row
