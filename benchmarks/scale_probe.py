"""A plugin of pytest for `scale.py`: tells what each step of a run takes, and lets no model run.

In place of a process that runs models stands an object that answers at once. It draws the times
that it tells from seeded generators, 1 ms with a spread of 0.5 %, so that what a run takes is the
time of pytest-modelperf and of pytest alone.

    MODELPERF_SCALE_STEPS   the file that the steps, how often each verdict came, and the number of
                            blocks of inferences that were asked for are written to
    MODELPERF_SCALE_SLOWER  how many times as long a model takes as the twin of its baseline
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import platform
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from pytest_modelperf.testing.formats import VERDICT_PROPERTY

if TYPE_CHECKING:
    from typing_extensions import Self

STEPS = "MODELPERF_SCALE_STEPS"
SLOWER = "MODELPERF_SCALE_SLOWER"
_TWIN = "twin.onnx"
_INFERENCE_NS, _SPREAD, _LOAD_NS = 1_000_000, 0.005, 500_000
# Samples that two cases share would be taken for copied ones.
_SEEDS = itertools.count()

# What is timed within the end of a run: the step, and the function that takes it.
_PARTS = (
    ("plan baselines", "pytest_modelperf.testing.ending", "RunEnding._updates"),
    ("look for unused baselines", "pytest_modelperf.testing.ending", "RunEnding._find_unused"),
    ("write baselines", "pytest_modelperf.testing.ending", "RunEnding._write"),
    ("write JSON", "pytest_modelperf.testing.report", "dump_run"),
    ("describe the run", "pytest_modelperf.testing.report", "run_report"),
    ("write HTML", "pytest_modelperf.report.html.render", "render_page"),
    ("write benchmark JSON", "pytest_modelperf.testing.formats", "dump_benchmarks"),
    ("write annotations", "pytest_modelperf.testing.formats", "annotations"),
    ("write Markdown and terminal summary", "pytest_modelperf.report.render", "render_report"),
)


# The steps are registered after the plugin that they time, so that they run around it.
@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    preparation: Any = importlib.import_module("pytest_modelperf.profiler.model_in_worker")
    preparation.start_worker = InstantWorker
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Steps(), "modelperf-scale-steps")


class _Steps:
    """The seconds of a processor that each step of this run takes."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._verdicts: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        with self._step("collect"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        with self._step("check"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        for step, module, name in _PARTS:
            self._watch(step, module, name)
        with self._step("end"):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            told = dict(report.user_properties)
            self._verdicts[str(told.get(VERDICT_PROPERTY, report.outcome))] += 1

    def pytest_unconfigure(self) -> None:
        told = {
            "seconds": self._seconds,
            "verdicts": self._verdicts,
            "blocks": InstantWorker.blocks,
        }
        Path(os.environ[STEPS]).write_text(json.dumps(told), "utf-8")

    @contextmanager
    def _step(self, name: str) -> Generator[None, None, None]:
        begun = time.process_time()
        try:
            yield
        finally:
            spent = time.process_time() - begun
            self._seconds[name] = self._seconds.get(name, 0.0) + spent

    def _watch(self, step: str, module: str, name: str) -> None:
        owner: Any = importlib.import_module(module)
        *outer, last = name.split(".")
        for part in outer:
            owner = getattr(owner, part)
        function: Callable[..., Any] = getattr(owner, last)

        def watched(*arguments: object, **words: object) -> object:
            with self._step(step):
                return function(*arguments, **words)

        setattr(owner, last, watched)


class InstantWorker:
    """What `ProcessWorker` is to those who ask it, without a process and without an engine."""

    is_own_process = is_local = True
    machine = None
    processors = (0,)
    unpinned_because = None
    python = platform.python_version()
    # How many of all workers ran.
    blocks: ClassVar[int] = 0

    def __init__(self, setup: object, cores: int, cgroup_files: Sequence[str] = ()) -> None:
        del setup, cores, cgroup_files
        self.folder = Path(tempfile.mkdtemp(prefix="modelperf-"))
        self._draw = np.random.default_rng(next(_SEEDS))
        self._factors: dict[str, float] = {}
        self._now_ns = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.folder)

    def use_engine(self, engine: Any, options: Mapping[str, str]) -> Mapping[str, Any]:  # noqa: ANN401  # not imported before the run asks for it
        # Without the version that is installed nothing would ever be unchanged.
        return {"version": version(engine.name), "options": dict(options), "providers": ["CPU"]}

    def send_file(self, path: Path, name: str) -> str:
        del name
        return str(path)

    def send_model(self, path: Path, beside: Sequence[Path], place: str = "model") -> str:
        del beside, place
        return str(path)

    def ask(self, command: str, step: str, limit_s: float | None = None, **arguments: Any) -> Any:  # noqa: ANN401  # the worker's interface
        """None is the answer of an engine that cannot tell: layers, shapes, outputs."""
        del step, limit_s
        answer = getattr(self, f"_{command}", None)
        return None if answer is None else answer(**arguments)

    def _open(self, side: str, model: str, **_: object) -> Mapping[str, int]:
        is_twin = Path(model).name == _TWIN
        self._factors[side] = 1.0 if is_twin else float(os.environ.get(SLOWER, "1"))
        return {"load_ns": _LOAD_NS, "begun_ns": self._pass_ns(_LOAD_NS)}

    def _block(
        self, sides: Sequence[str], count: int, max_ns: int, **_: object
    ) -> Mapping[str, Any]:
        InstantWorker.blocks += 1
        count = max(1, min(count, max_ns // (len(sides) * _INFERENCE_NS)))
        times = {side: self._times_ns(side, count) for side in sides}
        wall_ns = int(sum(each.sum() for each in times.values()))
        begun_ns = self._pass_ns(wall_ns)
        starts = begun_ns + np.cumsum(sum(times.values())) - sum(times.values())
        told = {"starts": starts.tobytes(), "switches": b"", "running": b"", "unstalled": b""}
        return {
            "times": {side: each.tobytes() for side, each in times.items()},
            "turns": dict.fromkeys(sides, told) if len(sides) > 1 else None,
            "parts": {},
            "begun_ns": begun_ns,
            "per_second": None,
            "noise": {"wall_ns": wall_ns},
        }

    def _memory(self) -> Mapping[str, int | None]:
        return {"peak_rss_bytes": 50_000_000, "engine_peak_bytes": None, "available_bytes": None}

    def _times_ns(self, side: str, count: int) -> Any:  # noqa: ANN401  # an array of numpy
        middle = _INFERENCE_NS * self._factors[side]
        return (middle * np.exp(self._draw.normal(0.0, _SPREAD, count))).astype(np.int64)

    def _pass_ns(self, duration_ns: int) -> int:
        begun_ns, self._now_ns = self._now_ns, self._now_ns + duration_ns
        return begun_ns
