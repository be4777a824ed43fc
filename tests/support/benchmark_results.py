"""The document of a benchmark, made by hand: nothing in it depends on a machine."""

from __future__ import annotations

from results import Result, Rows, from_json


def result_of(benchmark: str, rows: Rows) -> Result:
    return from_json(
        {
            "benchmark": benchmark,
            "command": f"python benchmarks/{benchmark}.py",
            "date": "2026-11-22T03:00:00+00:00",
            "seconds": 90.0,
            "is_complete": True,
            "before": {"load": 0.1, "loop_ms": 2.0},
            "after": {"load": 1.2, "loop_ms": 2.5},
            "machine": {"cpu": "A processor", "usable_cores": 2, "system": "Linux"},
            "versions": {"python": "3.11.7"},
            "rows": rows,
        }
    )
