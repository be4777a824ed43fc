"""The records of a test run: the outcome of each case, their names, and the report of the run."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.baselines.program import StoredProgram
from pytest_modelperf.baselines.records import (
    BaselineChange,
    BaselineRecording,
    StoredStatic,
    UpdatePlan,
)
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.comparing.engine_change import EngineChange
from pytest_modelperf.comparing.records import (
    COMPARED_CASE,
    RECORDED,
    XFAILED,
    CaseComparison,
    Verdict,
    worst,
)
from pytest_modelperf.files.documents import Confidence, Count, Figure, Number, Positive
from pytest_modelperf.obtaining.records import ModelOrigin
from pytest_modelperf.profiler.counting.records import TOTALS_KEYS
from pytest_modelperf.profiler.machine.facts import MACHINE, MachineFacts
from pytest_modelperf.profiler.measurements import LATENCY
from pytest_modelperf.profiler.records import Case, ModelFacts
from pytest_modelperf.profiler.rows import GENERATION, GenerationFigures
from pytest_modelperf.profiler.shown.model_names import name_models, name_paths
from pytest_modelperf.report.codec import JsonDocument, JsonObject
from pytest_modelperf.report.picture.layout import SeenBox
from pytest_modelperf.spec.case_spec import TestedModel
from pytest_modelperf.stats.records import Latency
from pytest_modelperf.testing.names import ALL_CASES
from pytest_modelperf.text.escaping import printable

NO_OLDER_VERSION = (
    "a Python function has no older version, so --modelperf-against did not compare it"
)
NOTHING_JUDGED = (
    "a Python function has no baseline, so it is judged by budgets alone, and this one has none: "
    "set one with @pytest.mark.perf_budget(latency_ms=...)"
)
NOTHING_RECORDED = (
    "a Python function has no baseline, so --modelperf-update-baseline did not record it"
)
NOT_SENT = "a Python function cannot be sent to a cluster, so it was measured here"


class Source(Struct, frozen=True, kw_only=True):
    """The file and line that define a test: relative to the project, counted from 1."""

    path: str
    line: Count | None


class BaselineLink(Struct, frozen=True):
    """The comparison of a recorded model with the baseline that it replaces, for the history.

    `problem` is the reason if there is no comparison.
    """

    comparison: CaseComparison | None = None
    problem: str | None = None


class CaseOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of one case in a test run.

    `test` is the id of the test, `model` has the facts about the current model, and `baseline` is
    the folder of its baseline. `comparison` has the verdict, and all figures that were compared
    with the baseline or a budget. `static`, `latency` and `generation` are the figures of this run.
    `latency` is None if nothing ran, and `generation` is None for a plain case. `confidence`
    applies to each judged figure. `times_ns` are the samples of each round, if a report needs them.

    `recording` is what the run stores of a case, and `program` what it stores of a program. `link`
    compares a recorded case with the previous baseline, if a history is written. `accept` is the
    command that records the case. It is None if recording would not help, and then `advice` may say
    what does. `engine_options` are the options of the command `modelperf` for the same engine, and
    `generation_options` those for the same generation.

    `engine_change` is the change of the engine since the baseline was recorded, if the run does not
    name the engine of the baseline. `is_upgrade` means that this change was judged, by the baseline
    on both versions, and not the model. `is_xfailed` means that the test expects this failure, so
    the test did not fail.
    """

    test: str
    source: Source
    model: ModelFacts
    cores: Positive
    batch_size: Positive
    comparison: CaseComparison
    baseline: str | None = None
    engine: str = ""
    engine_options: tuple[str, ...] = ()
    generation_options: tuple[str, ...] = ()
    static: StoredStatic | None = None
    generation: GenerationFigures | None = None
    latency: Latency | None = None
    load_ms: Number | None = None
    first_inference_ms: Number | None = None
    peak_rss_bytes: Count | None = None
    confidence: Confidence | None = None
    seconds: Number = 0.0
    times_ns: tuple[tuple[int, ...], ...] = ()
    machine: MachineFacts | None = None
    recording: BaselineRecording | None = None
    program: StoredProgram | None = None
    link: BaselineLink | None = None
    accept: str | None = None
    advice: str | None = None
    engine_change: EngineChange | None = None
    is_upgrade: bool = False
    is_xfailed: bool = False

    def __repr__(self) -> str:
        return f"<outcome of {self.test}: {self.word}>"

    @property
    def case_id(self) -> str:
        """The id in reports: `b1-c1`, or `b1-c1-upgrade`."""
        return f"{self.comparison.id}-upgrade" if self.is_upgrade else self.comparison.id

    @property
    def known_engine(self) -> str | None:
        return self.engine or None

    @property
    def verdict(self) -> Verdict:
        return self.comparison.verdict

    @property
    def has_failed(self) -> bool:
        """Whether it could not be measured or stored, so that it has no verdict."""
        return self.comparison.has_failed

    @property
    def is_recorded(self) -> bool:
        """Whether it was recorded, and no error that prevents storing it is known."""
        return (self.recording or self.program) is not None and not self.has_failed

    @property
    def word(self) -> str:
        """The word in reports: the verdict, or `xfailed`, `failed` or `recorded`."""
        if self.is_xfailed:
            return XFAILED
        if self.has_failed:
            return "failed"
        if self.is_recorded and self.verdict is Verdict.NEW:
            return RECORDED
        return self.verdict.value

    def without_recording(self, problem: str | None = None) -> CaseOutcome:
        """Remove the recording. With a `problem`, a recorded case becomes a failure.

        A case that was also judged keeps its verdict.
        """
        if problem is None or self.word != RECORDED:
            return replace(self, recording=None, program=None)
        return replace(self, comparison=replace(self.comparison, failure=problem))


RUN_CASE = JsonObject(
    CaseOutcome,
    # Each case begins with its test.
    "test source model batch_size cores engine=known_engine machine=machine.key"
    f" {COMPARED_CASE.keys_at('comparison')} id=case_id seconds confidence generation static"
    " latency load_ms first_inference_ms peak_rss_bytes recorded=is_recorded accept engine_change"
    " upgrade=is_upgrade xfailed?=is_xfailed picture?=",
    title="RunCase",
    about="One case of a run: the keys of a case of a comparison, and those of its test.\n\n"
    "`seconds` is the time of the whole check, not only of the comparison. `picture` has the"
    " kernels that changed, between those that did not; it is empty if there is nothing to"
    " show.",
    generation=GENERATION,
    static=JsonObject(
        StoredStatic, f"{TOTALS_KEYS} uncounted_ops coverage? notes", about="The counts of a case."
    ),
    latency=LATENCY,
    picture=tuple[SeenBox, ...],
    **COMPARED_CASE.inner,
)


class OutcomeCounts(Struct, frozen=True, kw_only=True):
    """The number of cases with each verdict, of recorded, of failed and of xfailed ones."""

    passed: Count
    improved: Count
    regressed: Count
    over_budget: Count = field(name="over budget")
    inconclusive: Count
    new: Count
    unchanged: Count
    recorded: Count
    failed: Count
    xfailed: Count = 0


class PlannedChange(Struct, frozen=True):
    """A change of the baseline in a folder."""

    baseline: str
    change: BaselineChange


class RunReport(Struct, frozen=True, kw_only=True):
    """A whole run: its cases in the order that they ended, and what it did to the baselines.

    `seconds` is the time spent measuring. `plans` were written if `is_written`. `unused` are the
    stored cases without a test in this run, each with the folder of its baseline. For a program
    whose test is gone, the id of the test takes the place of the case. `unused` is None if the run
    cannot know this, because it did not select all tests. `typed` are the typed options that a
    command for the same baselines must repeat. `errors` fail the run, not one of its tests.
    """

    outcomes: tuple[CaseOutcome, ...]
    machine: MachineFacts | None = None
    seconds: Number = 0.0
    is_strict: bool = False
    tolerance: Figure | None = None
    plans: tuple[UpdatePlan, ...] = ()
    is_written: bool = False
    unused: tuple[tuple[str, str], ...] | None = None
    started: dt.datetime | None = None
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<run of {len(self.outcomes)} cases>"

    @property
    def verdict(self) -> Verdict:
        """The worst verdict, without expected failures. A failed case counts as inconclusive."""
        return worst(o.verdict for o in self.outcomes if not o.is_xfailed)

    @property
    def known_verdict(self) -> Verdict | None:
        """The verdict, or None if no case has one."""
        return None if all(outcome.has_failed for outcome in self.outcomes) else self.verdict

    @property
    def start(self) -> str | None:
        """The time when it started, with its time zone."""
        return None if self.started is None else self.started.isoformat()

    @property
    def counts(self) -> OutcomeCounts:
        none = dict.fromkeys(OutcomeCounts.__struct_encode_fields__, 0)
        found = Counter(outcome.word for outcome in self.outcomes)
        return msgspec.convert({**none, **found}, OutcomeCounts)

    @property
    def planned(self) -> tuple[PlannedChange, ...]:
        """All changes of baselines."""
        return tuple(PlannedChange(p.name, change) for p in self.plans for change in p.changes)

    @property
    def plan_notes(self) -> tuple[str, ...]:
        return tuple(note for plan in self.plans for note in plan.notes)

    @property
    def unused_cases(self) -> tuple[str, ...] | None:
        if self.unused is None:
            return None
        return tuple(f"{folder}: {case}" for folder, case in self.unused)


RUN = JsonDocument(
    RunReport,
    "verdict=known_verdict started=start seconds tolerance strict=is_strict machine counts"
    " cases=outcomes baselines=. notes errors?",
    title="Run",
    machine=MACHINE,
    cases=RUN_CASE,
    baselines=JsonObject(
        RunReport,
        "changes=planned notes=plan_notes written=is_written unused=unused_cases",
        title="RunBaselines",
        about="The effect of a run on the baselines.",
        changes=JsonObject(
            PlannedChange,
            "baseline case=change.case machine=change.machine name=change.name"
            " before=change.before after=change.after",
            about="One figure that an update of the baselines changes.",
        ),
    ),
)


# -- outcomes as text in a test report, which pytest-xdist and other plugins pass on


def pack(outcomes: Iterable[CaseOutcome]) -> str:
    return to_text(tuple(outcomes))


def unpack(text: str) -> tuple[CaseOutcome, ...]:
    """Return the outcomes that `pack` wrote."""
    return from_text(text, tuple[CaseOutcome, ...])


# -- the names of outcomes, and the outcome of a test that failed early


# Between folders, files, classes and functions. Text in brackets belongs to the function.
_SEPARATOR = re.compile(r"::|/")


def name_outcomes(outcomes: Sequence[CaseOutcome]) -> tuple[str, ...]:
    """Return a unique name for each: the end of its test's id, and more if needed.

    `encoder.onnx::b8-c2`, or `b/encoder.onnx::b8-c2` if there is another file with that name. If
    the id of the test does not have the case, the case follows, and the model if needed.
    """
    file_of = {outcome.test: _file_of(outcome) for outcome in outcomes}
    named = zip(file_of, file_of.values(), name_paths([*file_of.values()]), strict=True)
    endings = {test: _endings(test, file, name) for test, file, name in named}
    shared = Counter(ending for found in endings.values() for ending in found)
    names = [_shortest(outcome, endings[outcome.test], shared) for outcome in outcomes]
    names = _told_apart(names, name_models([outcome.model for outcome in outcomes]))
    names = _told_apart(names, [outcome.engine for outcome in outcomes])
    return tuple(map(printable, names))


def _file_of(outcome: CaseOutcome) -> str:
    """Return the file of its test. The name of a model may contain `::`."""
    parts, path = outcome.test.split("::"), f"/{outcome.model.path or ''}"
    starts = ["::".join(parts[:count]) for count in range(1, len(parts))]
    return next((file for file in starts if path.endswith(f"/{file}")), parts[0])


def _told_apart(names: Sequence[str], parts: Sequence[str]) -> list[str]:
    """Append its part to each name that has several different parts."""
    found: dict[str, set[str]] = {}
    for name, part in zip(names, parts, strict=True):
        found.setdefault(name, set()).add(part)
    return [
        f"{name} {part}" if len(found[name]) > 1 else name
        for name, part in zip(names, parts, strict=True)
    ]


def _endings(test: str, file: str, name: str) -> tuple[str, ...]:
    """Return each end of the id that begins with a whole name, the shortest first.

    An end that contains a part of the file's path contains at least the file's unique `name`.
    """
    function = test.partition("[")[0]
    starts = [0, *(found.end() for found in _SEPARATOR.finditer(function))]
    within = range(len(file) - len(name) + 1, len(file))
    return tuple(test[start:] for start in reversed(starts) if start not in within)


def _shortest(outcome: CaseOutcome, endings: Sequence[str], shared: Counter[str]) -> str:
    case_id = outcome.comparison.id
    # A case alone is not enough, because it does not name its model.
    cases = {case_id, ALL_CASES}
    own = (e for e in endings if shared[e] == 1 and e.partition("@")[0] not in cases)
    name = next(own, outcome.test)
    name = name if _names_case(name, case_id) else f"{name} {case_id}"
    return f"{name} upgrade" if outcome.is_upgrade else name


def _names_case(name: str, case_id: str) -> bool:
    found = f"({re.escape(case_id)}|{ALL_CASES})"
    return re.search(rf"::{found}(@|$)|[\[-]{found}(?=[\]@-])", name) is not None


def name_models_of_tests(outcomes: Sequence[CaseOutcome]) -> Iterator[tuple[str, CaseOutcome]]:
    """Yield each outcome of a model with a unique name that does not depend on other tests.

    An upgrade of the engine is left out, because its model is a twin.
    """
    models = [outcome for outcome in outcomes if not outcome.is_upgrade]
    shared = Counter(map(_name_with_case, models))
    known: Counter[str] = Counter()
    for outcome in models:
        name = _name_with_case(outcome)
        if shared[name] > 1:
            # One test checked several models.
            name = f"{name} {outcome.model.name}"
        known[name] += 1
        yield name if known[name] == 1 else f"{name} {known[name]}", outcome


def _name_with_case(outcome: CaseOutcome) -> str:
    case_id = outcome.comparison.id
    parts = (f"::{case_id}", f"[{case_id}]", f"[{case_id}@")
    has_case = any(part in outcome.test for part in parts)
    return outcome.test if has_case else f"{outcome.test}[{case_id}]"


# -- a case that could not be judged, as reports show it


def failed_outcome(
    item: pytest.Item,
    model: TestedModel | ModelOrigin,
    message: str,
    case: Case | None = None,
    baseline: str | None = None,
) -> CaseOutcome:
    """Return the outcome of a test whose case failed before anything of it was known.

    A model that cannot be read has no `case`, and is shown at the smallest sizes.
    """
    known = case or Case(1, 1)
    return CaseOutcome(
        test=str(item.nodeid),
        source=source_of(item),
        model=_facts_of(model),
        cores=known.cores,
        batch_size=known.batch_size,
        comparison=CaseComparison(known, (), (), failure=message),
        baseline=baseline,
    )


def source_of(item: pytest.Item) -> Source:
    """Return the place that defines a test. A model has no lines."""
    path, line, _ = item.location
    has_line = isinstance(item, pytest.Function)
    return Source(path=path, line=line + 1 if has_line and line is not None else None)


def _facts_of(model: TestedModel | ModelOrigin) -> ModelFacts:
    if isinstance(model, ModelOrigin):
        return ModelFacts.named(model.name)
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        return ModelFacts.named(path.name, str(path))
    return ModelFacts.named(getattr(model, "__qualname__", type(model).__name__))
