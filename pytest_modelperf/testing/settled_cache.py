"""Cases that plans settled in earlier runs, kept in the user's cache folder.

The same model, baseline, engine and processor do not need to be loaded again. A case that was
judged by its times is never kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.baselines.records import Baseline
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.comparing.engine_change import installed_builds
from pytest_modelperf.comparing.gates import RUN_LEVEL
from pytest_modelperf.comparing.records import How
from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.files.caches import user_cache_folder
from pytest_modelperf.files.store import write_file
from pytest_modelperf.profiler.hookspecs import Operators
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.testing.case_check import CaseCheck, CheckContext, CheckOf, baseline_of_case
from pytest_modelperf.testing.checking import Checked
from pytest_modelperf.testing.outcome_of_check import of_model
from pytest_modelperf.text.version import __version__

_FOLDER = "settled"
# About 10 kB each.
_MOST_FILES = 4096
_KEPT_NOTE = "found in an earlier run for the same model, baseline, engine and processor"


class _Key(Struct, frozen=True, kw_only=True):
    """Everything that decides the outcome of a case that its plan settles."""

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
        self._folder = folder
        self._run = run

    @classmethod
    def of_user(cls, run: str | None = None) -> SettledCache | None:
        """Return the cache of this user, or None for a user without a home folder."""
        try:
            return cls(user_cache_folder() / _FOLDER, run)
        except ModelPerfError:
            return None

    def key(
        self, check: CaseCheck, context: CheckContext, stored: Baseline, sha256: str
    ) -> str | None:
        """Return the key of a case, or None if its outcome depends on more than the key holds.

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
            files = [*self._folder.iterdir()]
            if len(files) <= _MOST_FILES:
                return
            by_age = sorted(files, key=lambda file: file.stat().st_mtime)
            for file in by_age[: len(files) - _MOST_FILES // 2]:
                file.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def _unsettled_path(self, key: str) -> Path:
        return self._folder / f"{key}.{self._run}"

    def _write(self, path: Path, text: str) -> None:
        with suppress(OSError, ModelPerfError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, text.encode())
