"""The records of a reduction: the tried units, the answers, and what was kept."""

from __future__ import annotations

from collections import Counter
from enum import Enum

from msgspec import Struct

from pytest_modelperf.comparing.changes import Interval, KernelCounts
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.graph.plans.parts import describe_change
from pytest_modelperf.profiler.measurements import EngineFacts
from pytest_modelperf.report.codec import JsonDocument, JsonObject


class StepAnswer(str, Enum):
    """The answer of a duet of some kernels. `failed` means that they do not run alone."""

    SLOWER = "slower"
    NOT_SLOWER = "not slower"
    OPEN = "open"
    FAILED = "failed"


class UnitKernels(Struct, frozen=True, kw_only=True):
    """A unit of both plans: its operators on each side, and how much longer it takes now.

    `longer_ns` comes from short profiles, which do not judge.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    is_changed: bool
    longer_ns: float

    @property
    def text(self) -> str:
        if not self.is_changed:
            return self.after[0]
        return describe_change(Counter(self.before), Counter(self.after))


UNIT = JsonObject(
    UnitKernels, "before after changed=is_changed longer_ms=longer_ns kept=", kept=bool
)
FIGURE = JsonObject(
    Metric,
    "verdict before_ms=before after_ms=after ratio interval confidence detectable allowed",
    title="ReducedFigure",
    about="The median latency of both sides of something that ran in turn.",
    interval=Interval,
)


class ReduceStep(Struct, frozen=True, kw_only=True):
    """A duet of some units.

    `metric` is its median latency, or None if it could not run.
    """

    units: tuple[int, ...]
    shown: StepAnswer
    allowed: float
    metric: Metric | None = None
    reason: str | None = None
    seconds: float = 0.0


STEP = JsonObject(
    ReduceStep,
    "units shown figure=metric failure=reason seconds",
    about="A duet of some units, by their indexes; the figure is null if they did not run.",
    figure=FIGURE,
)


class UnitSearch(Struct, frozen=True, kw_only=True):
    """The steps of a search, and the units that still show the slowdown, if any do."""

    steps: tuple[ReduceStep, ...]
    kept: tuple[int, ...] = ()
    # Whether none of them can be left out. If false, the time ended before that was known.
    is_smallest: bool = False

    @property
    def shown_by(self) -> ReduceStep | None:
        """The step that showed the slowdown with the units that were kept."""
        matching = [s for s in self.steps if s.units == self.kept and s.shown is StepAnswer.SLOWER]
        return matching[-1] if matching else None


class WrittenPair(Struct, frozen=True, kw_only=True):
    """The two written models, with drawn weights, and what a duet of them shows.

    `sizes` are those of the models without their weights, in bytes. `warnings` say why drawn
    weights or inputs may change the time.
    """

    metric: Metric
    sizes: tuple[int, int]
    warnings: tuple[str, ...] = ()

    @property
    def shows_slowdown(self) -> bool:
        return self.metric.verdict is Verdict.REGRESSED


WRITTEN_PAIR = JsonObject(
    WrittenPair,
    "target= kernels= sizes figure=metric smallest= warnings",
    target=str,
    kernels=KernelCounts,
    figure=FIGURE,
    smallest=bool,
)


class Reduction(Struct, frozen=True, kw_only=True):
    """A whole reduction: the comparison of both models, the search, and the written pair.

    `search` and `written` are None if B is not slower. `written` is also None if no part of the
    model shows the slowdown. `units` are all kernels of both plans.
    """

    before: str
    after: str
    comparison: CaseComparison
    tolerance: float
    level: float
    units: tuple[UnitKernels, ...] = ()
    search: UnitSearch | None = None
    written: WrittenPair | None = None
    seconds: float = 0.0

    @property
    def whole(self) -> Metric | None:
        """The median latency of both whole models, or None if they are the same."""
        return self.comparison.metric("latency_p50")

    @property
    def verdict(self) -> Verdict:
        return Verdict.UNCHANGED if self.whole is None else self.whole.verdict

    @property
    def engines(self) -> tuple[EngineFacts, EngineFacts] | None:
        before, after = self.comparison.before, self.comparison.after
        return None if before is None or after is None else (before.engine, after.engine)

    @property
    def engine_labels(self) -> tuple[str, ...]:
        return tuple(engine.label for engine in self.engines or ())

    @property
    def steps(self) -> tuple[ReduceStep, ...]:
        return () if self.search is None else self.search.steps

    @property
    def is_upgrade(self) -> bool:
        """Whether both models ran in other Pythons, or on other versions of the engine."""
        return self.engines is not None and self.engines[0] != self.engines[1]

    @property
    def kept(self) -> tuple[UnitKernels, ...]:
        return () if self.search is None else tuple(self.units[index] for index in self.search.kept)

    @property
    def left_out(self) -> tuple[UnitKernels, ...]:
        """The other units that take longer according to their profiles, the longest first."""
        kept = () if self.search is None else self.search.kept
        others = [unit for index, unit in enumerate(self.units) if index not in kept]
        return tuple(sorted((u for u in others if u.longer_ns > 0), key=lambda u: -u.longer_ns))

    @property
    def kernels(self) -> KernelCounts:
        return KernelCounts(
            before=sum(len(unit.before) for unit in self.kept),
            after=sum(len(unit.after) for unit in self.kept),
        )


REDUCTION = JsonDocument(
    Reduction,
    "verdict before after case=comparison.id engines=engine_labels tolerance level seconds whole"
    " units steps written",
    whole=FIGURE,
    units=UNIT,
    steps=STEP,
    written=WRITTEN_PAIR,
)
