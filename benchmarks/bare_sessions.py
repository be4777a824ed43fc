"""Sessions of ONNX Runtime as anyone would start them, without any code of the package."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import onnxruntime as ort


def start_session(model: Path | bytes, cores: int = 1, **settings: Any) -> ort.InferenceSession:  # noqa: ANN401  # as each option takes it
    """A session on the processor; `settings` are further attributes of its options."""
    options = ort.SessionOptions()
    for name, value in {"intra_op_num_threads": cores, "log_severity_level": 3, **settings}.items():
        setattr(options, name, value)
    given = model if isinstance(model, bytes) else str(model)
    return ort.InferenceSession(given, options, providers=["CPUExecutionProvider"])


def profile_runs(model: Path, path: Path, runs: int, feed_of: Callable[[Any], Any]) -> None:
    """Write the profile of `runs` inferences by the engine; `feed_of` makes their inputs."""
    prefix = str(path.with_suffix(""))
    session = start_session(model, enable_profiling=True, profile_file_prefix=prefix)
    feed = feed_of(session)
    for _ in range(runs):
        session.run(None, feed)
    Path(session.end_profiling()).replace(path)


def time_ratio(
    sessions: tuple[ort.InferenceSession, ort.InferenceSession],
    feed: Any,  # noqa: ANN401  # arrays by name
    seconds: float,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> float:
    """How many times as long the second takes: the median ratio of at least five runs in turn."""
    ratios: list[float] = []
    end = time.monotonic() + seconds
    while len(ratios) < 5 or time.monotonic() < end:
        times = []
        for session in sessions:
            begun = clock()
            session.run(None, feed)
            times.append(max(clock() - begun, 1))
        ratios.append(times[1] / times[0])
    return median(ratios)
