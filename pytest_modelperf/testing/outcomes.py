"""The records of a test run: the outcome of each case, and the report of the run."""

from __future__ import annotations

import datetime as dt
from collections import Counter

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.baselines.program import StoredProgram
from pytest_modelperf.baselines.records import (
    BaselineChange,
    BaselineRecording,
    StoredStatic,
    UpdatePlan,
)
from pytest_modelperf.comparing.records import (
    COMPARED_CASE,
    RECORDED,
    XFAILED,
    CaseComparison,
    Verdict,
    worst,
)
from pytest_modelperf.comparing.since_recorded import EngineChange
from pytest_modelperf.files.documents import Confidence, Count, Figure, Number, Positive
from pytest_modelperf.profiler.counting.records import TOTALS_KEYS
from pytest_modelperf.profiler.machine.hardware import MACHINE, MachineFacts
from pytest_modelperf.profiler.measurements import LATENCY
from pytest_modelperf.profiler.records import ModelFacts
from pytest_modelperf.profiler.rows import GENERATION, GenerationFigures
from pytest_modelperf.report.codec import JsonDocument, JsonObject
from pytest_modelperf.report.picture.layout import SeenBox
from pytest_modelperf.stats.records import Latency

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
