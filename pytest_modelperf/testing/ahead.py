"""Settling cases that need no measurement, all together before the first test runs.

Making a plan is not a measurement, so several workers make plans of different models at the same
time. A case that its plan does not settle is checked by its test, alone on the machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.records import Baseline
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.comparing.gates import RUN_LEVEL
from pytest_modelperf.comparing.records import CaseComparison, How
from pytest_modelperf.comparing.since_recorded import installed_builds
from pytest_modelperf.errors import MeasureError, ModelPerfError
from pytest_modelperf.files.store import write_file
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.profiler.hookspecs import Operators
from pytest_modelperf.profiler.machine.describe import cores_available
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measurements import WAITING, Progress
from pytest_modelperf.profiler.records import CaseProfile
from pytest_modelperf.profiler.shared_worker import SharedTime, SharedWorkers
from pytest_modelperf.profiler.worker.lock import measuring_alone
from pytest_modelperf.testing.case_check import CaseCheck, CheckContext, CheckOf, baseline_of_case
from pytest_modelperf.testing.checking import Checked, Checker, SettledCheck, of_model
from pytest_modelperf.testing.settings import is_empty, settled_folder
from pytest_modelperf.text.version import __version__

# This process reads the graph and the plan of each model, which takes about a quarter of the time.
_MOST_WORKERS = 8


class SettledAhead(Struct, frozen=True):
    """A checker with the results of settled cases. `here` checks all others."""

    here: Checker
    settled: dict[str, tuple[CaseCheck, SettledCheck]]

    @property
    def context(self) -> CheckContext:
        return self.here.context

    def check(self, check: CaseCheck) -> Checked:
        asked, found = self.settled.pop(check.test, (None, None))
        if asked is not None and found is not None and asked.is_same(check):
            # A fixture may have rewritten the model since then.
            with suppress(ModelPerfError):
                found.require_unchanged()
                return found.checked
        return self.here.check(check)

    def measure(self, check: CaseCheck) -> CaseProfile:
        return self.here.measure(check)

    def count(self, check: CaseCheck) -> CaseProfile:
        return self.here.count(check)

    def compare(self, before: CaseCheck, after: CaseCheck) -> CaseComparison:
        return self.here.compare(before, after)


def settle_ahead(
    checker: Checker,
    checks: Iterable[CaseCheck],
    cache: SettledCache | None,
    early: SharedWorkers | None = None,
) -> SettledAhead:
    """Settle those checks that plans alone can settle. Each test has one check.

    The `cache` has the outcomes of earlier runs, and `early` are workers that already start.
    """
    by_cores: dict[int, list[CaseCheck]] = {}
    for check in filter(checker.may_settle, checks):
        (cores,) = check.request.cores
        by_cores.setdefault(cores, []).append(check)
    settled: dict[str, tuple[CaseCheck, SettledCheck]] = {}
    watch = checker.context.watch
    quiet = Checker(replace(checker.context, watch=lambda _: None))
    for cores, group in by_cores.items():
        places = min(max(1, (cores_available().cores or 1) // cores), _MOST_WORKERS)
        # If this machine cannot be used, each test reports the error.
        with suppress(MeasureError):
            workers, early = early, None
            if workers is None or not workers.are_as_new:
                workers = SharedWorkers(SharedTime.of_machine())
            same = _Group(quiet, group, min(places, len(group)), workers, cache)
            settled.update(same.settle(watch))
    if cache is not None:
        cache.prune()
    return SettledAhead(checker, settled)


class _Group(Struct, frozen=True):
    """Cases on the same number of cores, and the workers in some places that plan their models."""

    checker: Checker
    checks: Sequence[CaseCheck]
    places: int
    workers: SharedWorkers
    cache: SettledCache | None

    def settle(
        self, watch: Callable[[Progress], None]
    ) -> Mapping[str, tuple[CaseCheck, SettledCheck]]:
        settled: dict[str, tuple[CaseCheck, SettledCheck]] = {}
        checks, time = self.checks, self.workers.time

        def show(done: int, step: str) -> None:
            watch(Progress(case_id="plans", case_number=done, cases=len(checks), step=step))

        with measuring_alone(lambda holder: show(0, f"{WAITING} {holder}")), ExitStack() as stack:
            # The extra thread reads the next model while all workers are busy.
            pool = ThreadPoolExecutor(self.places + 1, "modelperf-plan")
            stack.callback(pool.shutdown, cancel_futures=True)
            # After an interrupt, the workers end first, so that no thread waits for one.
            stack.callback(self.workers.end)
            if self.cache is None or is_empty(self.cache.folder):
                # Nothing is known, so the workers start while the first models are read.
                self._start(checks[0])

            def settle(check: CaseCheck) -> SettledCheck | None:
                try:
                    with time.turn():
                        return self._settle(check)
                except Exception:  # noqa: BLE001  # its test will report it
                    return None

            futures = {pool.submit(settle, check): check for check in checks}
            for done, future in enumerate(as_completed(futures), 1):
                check, found = futures[future], future.result()
                if found is not None:
                    settled[check.test] = (check, found)
                with time.turn():
                    show(done, "comparing")
        return settled

    def _start(self, check: CaseCheck) -> None:
        (cores,) = check.request.cores
        self.workers.start(check.setup, cores, self.places)

    def _settle(self, check: CaseCheck) -> SettledCheck | None:
        """Settle a case from the cache of earlier runs, or by its plan, if that is possible."""
        key, file, cache = None, open_model(check.graph), self.cache
        if cache is not None:
            context = self.checker.context
            stored = context.baseline(str(check.baseline), context.machine_of(check.setup).key)
            with self.workers.time.waiting():
                sha256 = file.sha256()
            key = None if stored is None else cache.key(check, context, stored, sha256)
            if key is not None and cache.is_unsettled(key):
                return None
            known = None if key is None else cache.read(key, check)
            if known is not None:
                return SettledCheck(known, file.seen_files)
        self._start(check)
        found = self.checker.settle(check, file, self.workers.rig)
        if cache is not None and key is not None:
            if found is None:
                cache.note_unsettled(key)
            else:
                cache.write(key, found.checked)
        return found


# -- the cases that plans settled in earlier runs, in the user's cache folder


# About 10 kB each.
_MOST_FILES = 4096
_KEPT_NOTE = "found in an earlier run for the same model, baseline, engine and processor"


class _Key(Struct, frozen=True, kw_only=True):
    """All facts that decide the outcome of a case that its plan settles."""

    version: str
    engine: Mapping[str, str]
    machine: MachineFacts
    model: str
    baseline: str
    check: CheckOf[None]


class SettledCache:
    """The outcomes of settled cases, by a digest of everything that they depend on.

    The workers of one pytest-xdist run share `run`. If no plan settles a case, only one of them
    tries.
    """

    def __init__(self, folder: Path, run: str | None = None) -> None:
        self.folder = folder
        self._run = run

    @classmethod
    def of_user(cls, run: str | None = None) -> SettledCache | None:
        """Return the cache of this user, or None for a user without a home folder."""
        folder = settled_folder()
        return None if folder is None else cls(folder, run)

    def key(
        self, check: CaseCheck, context: CheckContext, stored: Baseline, sha256: str
    ) -> str | None:
        """Return the key of a case, or None if its outcome depends on facts outside the key.

        User code may change, and so may what a budget limits, such as an installed distribution.
        """
        engine = check.setup.engine
        has_user_code = engine.runs_user_code or context.extensions.operators != Operators()
        if has_user_code or check.budgets or check.keeps_profile:
            return None
        # The level depends on the number of figures in the run, which is irrelevant for a plan.
        gate = replace(check.gate, level=RUN_LEVEL)
        parts = _Key(
            version=__version__,
            engine=installed_builds(engine.name),
            machine=context.machine_of(check.setup),
            model=sha256,
            baseline=hashlib.sha256(
                msgspec.msgpack.encode(baseline_of_case(stored, check.case_id))
            ).hexdigest(),
            check=replace(check, gate=gate).of(None, check.request, check.setup),
        )
        return hashlib.sha256(to_text(parts).encode()).hexdigest()

    def read(self, key: str, check: CaseCheck) -> Checked | None:
        """Return the settled case, or None if it is not kept or its file cannot be read."""
        try:
            text = self._path(key).read_text("utf-8")
            checked = from_text(text, Checked)
        except (OSError, ValueError, ModelPerfError):
            return None
        outcome = of_model(checked.outcome, check.graph)
        comparison = replace(outcome.comparison, seconds=0.0)
        outcome = replace(outcome, comparison=comparison, seconds=0.0)
        return replace(checked, outcome=outcome).with_note(_KEPT_NOTE)

    def write(self, key: str, checked: Checked) -> None:
        """Keep a case that its plan settled. Errors of writing are ignored."""
        if checked.outcome.comparison.how is How.PLAN:
            self._write(self._path(key), to_text(replace(checked, profile=None)))

    def is_unsettled(self, key: str) -> bool:
        """Whether another worker of this run found that no plan settles the case."""
        return self._run is not None and self._unsettled_path(key).exists()

    def note_unsettled(self, key: str) -> None:
        if self._run is not None:
            self._write(self._unsettled_path(key), "")

    def prune(self) -> None:
        """Remove the oldest files if there are too many."""
        with suppress(OSError):
            files = [*self.folder.iterdir()]
            if len(files) <= _MOST_FILES:
                return
            by_age = sorted(files, key=lambda file: file.stat().st_mtime)
            for file in by_age[: len(files) - _MOST_FILES // 2]:
                file.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def _unsettled_path(self, key: str) -> Path:
        return self.folder / f"{key}.{self._run}"

    def _write(self, path: Path, text: str) -> None:
        with suppress(OSError, ModelPerfError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, text.encode())
