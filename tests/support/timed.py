"""An engine whose inference takes as long as the name of the model says: `slow_400us.onnx`.

Otherwise its `doc_string` may say it: `takes 400 us`. A model without a time takes 200 µs, or up to
a hundredth more. Loading takes 1 ms, or as long as the name says: `heavy_load9000us.onnx`. The
option `times` has the times of models by their whole name, as in
`times=pruned-0.5=100 int8-dynamic=300`; one that is called as the option `crash` says does not
load. Where the installed ONNX Runtime has the version of the option `slow_since` or a later one,
all take half as long again. They pass on a clock of its own, so what is measured is the same on a
busy machine. The largest inputs of a workload take 110 % of their time in
`net_100us_largest110.onnx`. It needs nothing but the standard library. Its version is 1, or what
`TIMED_VERSION` says, and it takes `TIMED_FACTOR` times as long. With `TIMED_OUTPUT` its sessions
return their output `y`, which is that number.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

DEFAULT_US = 200
_JITTER = 0.01
_GRAIN_NS = 10
_LOAD_NS = 1_000_000


class _Time(threading.local):
    """The time of each thread: requests that run at once do not wait for each other."""

    def __init__(self) -> None:
        self.now_ns = _BEGUN_NS
        self.random = random.Random(0)
        # No two workers have the same samples, though they differ by so little that nothing else
        # depends on it.
        self.grain = random.Random(_BEGUN_NS)


_BEGUN_NS = time.perf_counter_ns()
_time = _Time()


def clock_ns() -> int:
    return _time.now_ns


def wait_until(moment_ns: int) -> None:
    _time.now_ns = max(_time.now_ns, moment_ns)


def describe(options: dict[str, str]) -> dict[str, Any]:
    own = os.environ.get("TIMED_VERSION", "1")
    return {"name": "timed", "version": own, "options": options, "providers": []}


def load(model: Any, threads: int, options: dict[str, str]) -> Session:  # noqa: ANN401, ARG001  # the contract's
    name = os.path.basename(model.path)  # noqa: PTH119  # paths are texts on this side
    name = os.path.splitext(name)[0]  # noqa: PTH122  # likewise
    if "crash" in name or name == options.get("crash"):
        raise RuntimeError("it does not load")
    load = re.search(r"_load(\d+)us", name)
    _time.now_ns += int(load[1]) * 1000 if load else _LOAD_NS
    times = dict(each.split("=") for each in options.get("times", "").split())
    match = re.search(r"_(\d+)us", name) or _stated_time(model.path)
    microseconds = int(times.get(name) or (match[1] if match else DEFAULT_US))
    since = options.get("slow_since")
    if since is not None and _installed() >= _numbers(since):
        microseconds += microseconds // 2
    session = Session if "TIMED_OUTPUT" not in os.environ else TellingSession
    made = session(microseconds * int(os.environ.get("TIMED_FACTOR", "1")))
    largest = re.search(r"_largest(\d+)", name)
    made.of_largest = int(largest[1]) / 100 if largest else 1.0
    return made


def _installed() -> list[int]:
    # Takes as long as all else that this module needs, and hardly any worker asks.
    from importlib.metadata import version

    return _numbers(version("onnxruntime"))


def _numbers(release: str) -> list[int]:
    return [int(part) for part in release.split(".")]


def _stated_time(path: str) -> re.Match[str] | None:
    """The time that the text of the file says."""
    with open(path, "rb") as file:  # noqa: PTH123  # paths are texts on this side
        return re.search(r"takes (\d+) us", file.read().decode("latin-1"))


class Session:
    """A session whose inferences take a number of microseconds, or up to a hundredth more.

    Inferences of a workload take longer in proportion to the size of their inputs; those with the
    largest take `of_largest` times as long.
    """

    of_largest = 1.0

    def __init__(self, microseconds: int) -> None:
        self._ns = microseconds * 1000

    def prepare_steps(self, plan: Any, dtypes: object) -> Steps:  # noqa: ANN401, ARG002  # the contract's
        sizes = [sum(a.size for a in plan.inputs_at(at).values()) for at in range(plan.count)]
        least, most = min(sizes), max(sizes)
        return Steps(
            [
                partial(
                    self._infer, size / max(least, 1) * (self.of_largest if size == most else 1.0)
                )
                for size in sizes
            ]
        )

    def prepare(self, inputs: object, dtypes: object) -> Callable[[], None]:  # noqa: ARG002  # the contract's
        return self._infer

    prepare_another = prepare

    def peak_bytes(self) -> int | None:
        return None

    def close(self) -> None:
        pass

    def _infer(self, factor: float = 1.0) -> None:
        _time.now_ns += round(self._ns * factor * (1 + _JITTER * _time.random.random()))
        _time.now_ns += _time.grain.randrange(_GRAIN_NS)


class Steps:
    """The inferences of a workload in their order."""

    def __init__(self, infers: list[Callable[[], None]]) -> None:
        self._infers = infers
        self._next = 0

    def __call__(self) -> None:
        self._infers[self._next]()
        self._next = (self._next + 1) % len(self._infers)

    def rewind(self, step: int = 0) -> None:
        self._next = step


class TellingSession(Session):
    """A session that returns its output."""

    def read_outputs(self) -> dict[str, Any]:
        import numpy as np

        return {"y": np.array([1.0, float(os.environ["TIMED_OUTPUT"])], np.float32)}
