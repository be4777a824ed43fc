"""The records of a bisect: the versions in a range, the steps of the search, and what it found."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from msgspec import Struct, field

from pytest_modelperf.comparing.changes import Interval
from pytest_modelperf.comparing.figures import format_change, format_figure, interval_clause
from pytest_modelperf.comparing.limits import OUTPUTS
from pytest_modelperf.comparing.records import COMPARED_CASE, CaseComparison, Metric, Verdict
from pytest_modelperf.files.documents import Figure
from pytest_modelperf.programs.work import WORK_METRICS
from pytest_modelperf.report.codec import JsonDocument, JsonObject


class RangeKind(str, Enum):
    """The kind of versions that a range has."""

    RELEASES = "releases"
    COMMITS = "commits"


class BisectFigure(str, Enum):
    """The figure by which two versions are compared."""

    LATENCY = "latency"
    OUTPUTS = "outputs"
    WORK = "work"


class Version(Struct, frozen=True):
    """A release of an engine's package, or a commit of a model.

    `name` identifies it in its range, `label` names it in sentences, and `title` is the subject of
    a commit.
    """

    name: str
    label: str
    title: str = ""

    @property
    def subject(self) -> str | None:
        """The subject of a commit, or None for a release."""
        return self.title or None


VERSION = JsonObject(
    Version, "name title=subject", about="A release, or a commit with its subject."
)


class LeftOut(Struct, frozen=True):
    """A version between both ends that the search skips, and why."""

    name: str
    reason: str


class VersionRange(Struct, frozen=True):
    """The versions from the good end to the bad end, both included."""

    kind: RangeKind
    versions: tuple[Version, ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def good(self) -> Version:
        return self.versions[0]

    @property
    def bad(self) -> Version:
        return self.versions[-1]


class Answer(str, Enum):
    """The verdict of one step about a version. `failed` means that it was not measured."""

    GOOD = "good"
    BAD = "bad"
    INCONCLUSIVE = "inconclusive"
    FAILED = "failed"


class Judged(Struct, frozen=True):
    """The judged figure of two versions: their latency ratio, output difference, or work.

    `metric` is None if both are the same model.
    """

    verdict: Verdict
    metric: Metric | None = None
    comparison: CaseComparison | None = None

    @property
    def metric_ratio(self) -> float | None:
        return None if self.metric is None else self.metric.ratio

    @property
    def ratio(self) -> float:
        return 1.0 if self.metric_ratio is None else self.metric_ratio


class BisectStep(Struct, frozen=True, kw_only=True):
    """One version compared with a good one.

    `allowed` is the relative change that separates good from bad. `attempts` counts the duets: an
    inconclusive one is repeated with more time. `reason` says why it failed.
    """

    version: Version
    against: Version
    allowed: float
    answer: Answer
    attempts: int = 1
    judged: Judged | None = None
    reason: str | None = None
    seconds: float = 0.0

    @property
    def metric(self) -> Metric | None:
        return None if self.judged is None else self.judged.metric

    @property
    def comparison(self) -> CaseComparison | None:
        return None if self.judged is None else self.judged.comparison

    @property
    def is_of_outputs(self) -> bool:
        """Whether outputs were compared instead of times."""
        return self.metric is not None and self.metric.name == OUTPUTS

    @property
    def is_of_work(self) -> bool:
        """Whether the work of a call of a program was compared instead of times."""
        return self.metric is not None and self.metric.name in WORK_METRICS

    @property
    def more_work(self) -> str | None:
        """The additional work of a call of a program, as a sentence, or None without any."""
        return self.metric.reason if self.metric is not None and self.is_of_work else None

    @property
    def output_share(self) -> Figure | None:
        """The difference of the outputs as a share of their largest value, or None if unknown."""
        return self.metric.after if self.metric is not None and self.is_of_outputs else None

    @property
    def change(self) -> float | None:
        """The judged relative change, or None if it is unknown, as for work that was 0 before."""
        if self.judged is None or (self.is_of_work and self.judged.metric_ratio is None):
            return None
        return self.output_share if self.is_of_outputs else self.judged.ratio - 1.0

    @property
    def is_same_model(self) -> bool:
        return self.judged is not None and self.judged.verdict is Verdict.UNCHANGED

    @property
    def timed(self) -> BisectStep | None:
        """The step, unless outputs or work were compared."""
        return None if self.is_of_outputs or self.is_of_work else self


STEP = JsonObject(
    BisectStep,
    "version=version.name against=against.name answer allowed ratio=timed.judged.ratio"
    " interval=metric.interval confidence=metric.confidence before_ms=timed.metric.before"
    " after_ms=timed.metric.after same_model=is_same_model rounds=comparison.rounds attempts"
    " outputs=output_share work=more_work seconds failure=reason",
    about="One version compared with a good one; the figures are null if it was not measured.",
    interval=Interval,
)


class Regression(Struct, frozen=True, kw_only=True):
    """A step of the latency, or a change of the outputs, between two versions.

    `before` and `after` compare both versions with the good end of the search; `before` is None if
    `last_good` is that end. `pair` compares them with each other, and is None if that failed.
    `between` are the versions in the middle that could not be judged.
    """

    last_good: Version
    first_bad: Version
    before: BisectStep | None
    after: BisectStep
    pair: BisectStep | None
    between: tuple[Version, ...] = ()

    @property
    def is_gradual(self) -> bool:
        """Whether the search did not show that this step alone exceeds the tolerance."""
        return self.pair is not None and self.pair.answer is not Answer.BAD


REGRESSION = JsonObject(
    Regression,
    "last_good first_bad between=between.name gradual=is_gradual before after pair"
    " comparison=pair.comparison",
    about="A step of the latency between two versions.\n\n`before` and `after` compare these with"
    " the good end of the search, and `pair` with one another; `comparison` has the layers and"
    " reasons of the pair.",
    last_good=VERSION,
    first_bad=VERSION,
    before=STEP,
    after=STEP,
    pair=STEP,
    comparison=COMPARED_CASE,
)


class Search(Struct, frozen=True, kw_only=True):
    """The steps of a bisect, and the regressions in the order of the range.

    `ends` compares the bad end with the good one. `is_whole` means that all regressions were looked
    for.
    """

    ends: BisectStep
    steps: tuple[BisectStep, ...]
    regressions: tuple[Regression, ...] = ()
    is_whole: bool = False

    @property
    def verdict(self) -> Verdict | None:
        """The verdict of both ends, or None if they could not be compared."""
        return None if self.ends.judged is None else self.ends.judged.verdict


class Bisect(Struct, frozen=True, kw_only=True):
    """A whole bisect of one case of a model, or of a program.

    `options` are those of the engine. The `model` of a program is its test.
    """

    model: str
    engine: str
    case: str
    range: VersionRange
    search: Search
    tolerance: float
    level: float
    seconds: float
    judges: BisectFigure = BisectFigure.LATENCY
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict | None:
        return self.search.verdict

    @property
    def is_of_program(self) -> bool:
        compared = self.search.ends.comparison
        return compared is not None and compared.case.program is not None

    @property
    def may_have_more(self) -> bool:
        """Whether regressions in the range may remain, because not all were looked for."""
        has_more = len(self.range.versions) > 2
        return bool(self.search.regressions) and not self.search.is_whole and has_more


BISECT = JsonDocument(
    Bisect,
    "verdict model engine case by=range.kind good=range.good bad=range.bad versions=range.versions"
    " left_out=range.left_out judges tolerance level seconds all=search.is_whole"
    " regressions=search.regressions steps=search.steps notes=range.notes",
    about="A whole bisect of one case of a model, or of a program, whose test is the `model`.",
    good=VERSION,
    bad=VERSION,
    versions=VERSION,
    regressions=REGRESSION,
    steps=STEP,
)


# -- the words for a version and for a step


def short_name(version: Version) -> str:
    """Return `1.22.0`, or the start of a commit's id."""
    return version.label.rpartition(" ")[2]


def describe_change(step: BisectStep) -> str:
    """Return `+7.8 % (99.8 % interval +7.0 … +8.7 %)`, or `differ by 3.1 %`."""
    if step.is_same_model:
        return "the same model"
    if step.is_of_outputs:
        return describe_output_change(step)
    if step.is_of_work:
        return step.more_work or "no more work"
    metric = step.metric
    if metric is None or metric.ratio is None:
        return "unknown"
    return f"{format_change(metric)}{interval_clause(metric)}"


def describe_output_change(step: BisectStep) -> str:
    share = step.output_share
    if share is None:
        is_open = step.answer is Answer.INCONCLUSIVE
        return "cannot be compared" if is_open else "differ in more than their values"
    return f"differ by {format_outputs(share)}" if share else "are equal"


def format_outputs(share: float) -> str:
    return format_figure(OUTPUTS, share)
