"""Records of the comparisons judged by the parts that changed, their tables and expectations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from expected import Expectation, expect_none, expect_share
from kept import rounded
from loads import BUSY, LOADS, QUIET, TAKEN
from results import Result
from shown import count_of, grouped, markdown, median_of

from pytest_modelperf.profiler.sampling.policy import DUET_POLICY

# The change that is sized to make a model just so much slower, and the time of its rounds: by load
# on one core, and the default of the command on several.
SLIGHT = "0.5 % more kernels"
SLIGHT_SECONDS = {QUIET: 4.0, TAKEN: 8.0, BUSY: 8.0}
SLIGHT_SECONDS_OF_SEVERAL = DUET_POLICY.max_seconds
# A slight change counts if its truth is between these; larger models are not held to it.
SLIGHT_RATIOS = (1.004, 1.0065)
SLIGHT_MAX_MS = 40.0
# The allowed slowdown of p50: of slight changes, and of all others.
SLIGHT_TOLERANCE, TOLERANCE = 0.002, 0.03
# By what a case was judged.
PLAN, PARTS, DUET = "plan", "parts", "duet"
# Half of the interval of a truth, and the time that it may take.
PRECISION, TRUTH_SECONDS = 0.003, 600.0
# A figure may be off by so much of the model, or by this share of the true difference.
MAX_ERROR, MAX_SHARE = 0.003, 1 / 3
MIN_NEAR = 0.95
# How many of the intervals that were told meet that of the truth.
MIN_MEETING = 0.95
# The least share of slight changes that is found, by load and cores.
MIN_SLIGHT_FOUND = {(QUIET, 1): 0.95, (BUSY, 1): 0.85, (QUIET, 2): 0.9, (BUSY, 2): 0.9}
_PASSES = ("passed", "improved", "unchanged")


@dataclass(frozen=True, slots=True)
class Setting:
    """The conditions of one comparison. With `is_undone`, the changed model is the one before."""

    load: str
    cores: int
    model: str
    change: str
    is_undone: bool = False

    @property
    def tolerance(self) -> float:
        return SLIGHT_TOLERANCE if self.change == SLIGHT else TOLERANCE

    def seconds_of(self, usual: float) -> float:
        """The time of the rounds, which is `usual` except for slight changes."""
        if self.change != SLIGHT:
            return usual
        return SLIGHT_SECONDS[self.load] if self.cores == 1 else SLIGHT_SECONDS_OF_SEVERAL


@dataclass(frozen=True, slots=True)
class Truth:
    """The ratio of a change by a long duet of whole models on a quiet machine, with its interval.

    It has no ratio if the model has no place for the change. `pairs` is the number of added pairs
    of kernels of a slight change, and `seconds` the time that the duet took.
    """

    model: str
    cores: int
    change: str
    ratio: float | None
    low: float | None
    high: float | None
    rounds: int
    before_ms: float | None
    pairs: int | None = None
    seconds: float = 0.0

    def undone(self) -> Truth:
        """The truth of both models with their sides swapped."""
        if self.ratio is None or self.low is None or self.high is None or self.before_ms is None:
            return self
        return replace(
            self, ratio=1 / self.ratio, low=1 / self.high, high=1 / self.low,
            before_ms=self.before_ms * self.ratio,
        )  # fmt: skip

    @property
    def allowed_error(self) -> float:
        """How far a figure may be from the ratio."""
        return MAX_ERROR if self.ratio is None else max(MAX_ERROR, MAX_SHARE * abs(self.ratio - 1))

    def is_settled(self, precision: float, seconds: float) -> bool:
        """Whether a duet that ends at this precision, or after this time, would not go on."""
        if self.low is None or self.high is None:
            return True
        return (self.high - self.low) / 2 <= precision or self.seconds >= seconds

    @property
    def is_known(self) -> bool:
        """Whether the interval is narrow enough to hold a figure against."""
        if self.low is None or self.high is None:
            return False
        return (self.high - self.low) / 2 <= self.allowed_error

    @property
    def is_slight(self) -> bool:
        """Whether it is a slight change of a model that is held to finding it."""
        if self.change != SLIGHT or self.ratio is None or self.before_ms is None:
            return False
        least, most = SLIGHT_RATIOS
        return least <= self.ratio <= most and self.before_ms <= SLIGHT_MAX_MS


@dataclass(frozen=True, slots=True)
class Check(Setting):
    """One comparison: by what p50 was judged and how, its ratio, and the seconds of the command.

    `failure` says why nothing was judged.
    """

    how: str = ""
    verdict: str | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    parts: int = 0
    seconds: float = 0.0
    failure: str | None = None

    @property
    def setting(self) -> Setting:
        return Setting(self.load, self.cores, self.model, self.change, self.is_undone)

    @property
    def figure(self) -> float | None:
        """The ratio that was told; equal plans tell that nothing differs."""
        return 1.0 if self.how == PLAN and self.ratio is None else self.ratio


@dataclass(frozen=True, slots=True)
class Held:
    """One comparison held against the truth of its direction."""

    check: Check
    truth: Truth

    @property
    def error(self) -> float | None:
        figure, ratio = self.check.figure, self.truth.ratio
        return None if figure is None or ratio is None else figure - ratio

    @property
    def is_near(self) -> bool | None:
        """Whether the figure of parts is near the truth; None if one of them is not known."""
        if self.check.how != PARTS or self.error is None or not self.truth.is_known:
            return None
        return abs(self.error) <= self.truth.allowed_error

    @property
    def is_exact(self) -> bool:
        """Whether the interval that was told is as narrow as a figure has to be near."""
        low, high = self.check.low, self.check.high
        return low is not None and high is not None and (high - low) / 2 <= MAX_ERROR

    @property
    def meets_truth(self) -> bool | None:
        """Whether the interval that was told meets that of the truth; None without both."""
        low, high = self.check.low, self.check.high
        if self.check.how != PARTS or low is None or high is None:
            return None
        if self.truth.low is None or self.truth.high is None:
            return None
        return low <= self.truth.high and self.truth.low <= high

    @property
    def is_false_alarm(self) -> bool:
        """Whether an alarm was raised for what is shown to be within the tolerance."""
        most = 1 + self.check.tolerance
        high = self.truth.high
        return self.check.verdict == "regressed" and high is not None and high <= most

    @property
    def is_wrong_pass(self) -> bool:
        """Whether something passed that is shown to be slower than the tolerance."""
        most = 1 + self.check.tolerance
        low = self.truth.low
        return self.check.verdict in _PASSES and low is not None and low > most


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that one run measured."""

    truths: Sequence[Truth]
    held: Sequence[Held]

    @classmethod
    def of(cls, result: Result) -> Found:
        truths = result.read("truths", Truth)
        known = {(each.model, each.cores, each.change): each for each in truths}
        held = []
        for check in result.read("checks", Check):
            truth = known[check.model, check.cores, check.change]
            held.append(Held(check, truth.undone() if check.is_undone else truth))
        return cls(truths, held)

    def usual(self) -> list[Held]:
        """The comparisons of all changes but the slight ones."""
        return [each for each in self.held if each.check.change != SLIGHT]

    def slight(self) -> list[Held]:
        """The comparisons of slight changes whose truth is about what was wanted."""
        return [each for each in self.held if each.truth.is_slight]


def read_check(setting: Setting, document: Mapping[str, Any], seconds: float) -> Check:
    """What the JSON of `modelperf compare` says of its only case."""
    (case,) = document["cases"]
    how, failure, verdict = case["how"], case["failure"], None
    ratio = low = high = None
    p50 = next((each for each in case["metrics"] if each["name"] == "latency_p50"), None)
    if p50 is not None:
        verdict, ratio = p50["verdict"], p50["ratio"]
        low, high = p50["interval"] or (None, None)
    elif how == PLAN:
        verdict = "passed" if failure is None else None
    elif failure is None:
        failure = f"p50 was not judged, the case is {case['verdict']}"
    ratio, low, high = (rounded(each, 5) for each in (ratio, low, high))
    return Check(
        **asdict(setting), how=how, verdict=verdict, ratio=ratio, low=low, high=high,
        parts=len(case.get("parts") or ()), seconds=seconds, failure=failure,
    )  # fmt: skip


# -- tables


def tables(result: Result) -> dict[str, str]:
    found = Found.of(result)
    return {"parts": change_table(found), "parts short": short_table(found)}


def short_table(found: Found) -> str:
    """A line for each load and core count."""
    rows = []
    seen = {(each.check.load, each.check.cores) for each in found.held}
    for place in sorted(seen, key=lambda place: (LOADS.index(place[0]), place[1])):
        usual, slight = (
            [each for each in some if (each.check.load, each.check.cores) == place]
            for some in (found.usual(), found.slight())
        )
        slight_found = count_of(each.check.verdict == "regressed" for each in slight)
        figures = _figures(usual)[:4]
        rows.append((*place, *figures, slight_found, _median_seconds(slight)))
    header = ("machine", "cores", *_FIGURES[:4], "0.5 % more: found", "median s")
    return markdown(header, rows)


_FIGURES = (
    "parts near the truth", "intervals that meet it", "median error", "false alarms",
    "wrong passes", "open", "median s",
)  # fmt: skip


def _figures(held: Sequence[Held]) -> tuple[object, ...]:
    errors = [100 * abs(h.error) for h in held if h.check.how == PARTS and h.error is not None]
    return (
        count_of(_near(held)),
        count_of(_meets(held)),
        f"{median_of(errors, 2)} %" if errors else "-",
        sum(each.is_false_alarm for each in held),
        sum(each.is_wrong_pass for each in held),
        sum(each.check.verdict == "inconclusive" for each in held),
        _median_seconds(held),
    )


def change_table(found: Found) -> str:
    """A line for each change and its undoing."""
    groups = grouped(found.usual(), lambda each: (each.check.change, each.check.is_undone))
    ways = (PLAN, PARTS, DUET)
    rows = []
    for (change, is_undone), held in groups.items():
        counts = (sum(each.check.how == how for each in held) for how in ways)
        name = f"{change}, undone" if is_undone else change
        unsure = sum(each.check.how == PARTS and not each.truth.is_known for each in held)
        rows.append((name, len(held), *counts, unsure, *_figures(held)))
    header = ("change", "comparisons", *(f"by {how}" for how in ways), "truth not sure", *_FIGURES)
    return markdown(header, rows)


# -- expectations


def expectations(result: Result) -> tuple[Expectation, ...]:
    return tuple(expected(Found.of(result)))


def expected(found: Found) -> Iterator[Expectation]:
    usual = found.usual()
    settled = [t.is_settled(PRECISION, TRUTH_SECONDS) for t in found.truths if t.ratio is not None]
    near = "figures of parts within 0.3 % of the model or a third of the true difference"
    exact = "the same, of figures whose own interval is within 0.3 %"
    for what, right, least in (
        ("truths within 0.3 %, or of ten minutes", settled, 1.0),
        (near, _near(usual), MIN_NEAR),
        (exact, _near(each for each in usual if each.is_exact), MIN_NEAR),
        ("intervals of parts that meet that of the truth", _meets(usual), MIN_MEETING),
    ):
        if right:
            yield expect_share(what, right, least)
    for what, wrong in (
        ("alarms that contradict the truth at 3 %", [each.is_false_alarm for each in usual]),
        ("passes that contradict the truth at 3 %", [each.is_wrong_pass for each in usual]),
        ("comparisons that failed", [each.check.failure is not None for each in found.held]),
    ):
        if wrong:
            yield expect_none(what, wrong)
    for (load, cores), least in MIN_SLIGHT_FOUND.items():
        here = [h for h in found.slight() if (h.check.load, h.check.cores) == (load, cores)]
        if here:
            limit = f"{here[0].check.setting.seconds_of(0.0):g} s of rounds"
            place = f"{load}, {cores} core{'s' if cores > 1 else ''}"
            what = f"0.5 % more, tolerance 0.2 %, {place}: found in {limit}"
            share = expect_share(what, (h.check.verdict == "regressed" for h in here), least)
            said = f"{share.found}; median of the command {_median_seconds(here)} s"
            yield replace(share, found=said)


def _near(held: Iterable[Held]) -> list[bool]:
    """Whether each figure of parts is near its truth, if that is known."""
    return [each.is_near for each in held if each.is_near is not None]


def _meets(held: Iterable[Held]) -> list[bool]:
    """Whether each interval of parts meets that of its truth."""
    return [each.meets_truth for each in held if each.meets_truth is not None]


def _median_seconds(held: Iterable[Held]) -> str:
    return median_of(each.check.seconds for each in held)
