"""Records of the comparisons judged by the parts that changed, their tables and expectations."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from results import Expectation, Result, markdown

QUIET, TAKEN, BUSY = "quiet", "40 % taken", "both busy"
LOADS = (QUIET, TAKEN, BUSY)
# The change that is sized to make a model just so much slower, and the time of its rounds by load.
SLIGHT = "0.5 % more kernels"
SLIGHT_SECONDS = {QUIET: 4.0, TAKEN: 8.0, BUSY: 8.0}
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
MIN_SLIGHT_FOUND = {QUIET: 0.95, BUSY: 0.85}
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
        return Truth(
            self.model, self.cores, self.change,
            1 / self.ratio, 1 / self.high, 1 / self.low,
            self.rounds, self.before_ms * self.ratio, self.pairs, self.seconds,
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
class Check:
    """One comparison: by what p50 was judged and how, its ratio, and the seconds of the command.

    `failure` says why nothing was judged.
    """

    setting: Setting
    how: str
    verdict: str | None
    ratio: float | None
    low: float | None
    high: float | None
    parts: int
    seconds: float
    failure: str | None = None

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
        """Whether the figure is near the truth; None if one of them is not known."""
        if self.error is None or not self.truth.is_known:
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
        if low is None or high is None or self.truth.low is None or self.truth.high is None:
            return None
        return low <= self.truth.high and self.truth.low <= high

    @property
    def is_false_alarm(self) -> bool:
        """Whether an alarm was raised for what is shown to be within the tolerance."""
        most = 1 + self.check.setting.tolerance
        high = self.truth.high
        return self.check.verdict == "regressed" and high is not None and high <= most

    @property
    def is_wrong_pass(self) -> bool:
        """Whether something passed that is shown to be slower than the tolerance."""
        most = 1 + self.check.setting.tolerance
        low = self.truth.low
        return self.check.verdict in _PASSES and low is not None and low > most


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that one run measured."""

    truths: Sequence[Truth]
    held: Sequence[Held]

    @classmethod
    def of(cls, result: Result) -> Found:
        truths = [Truth(**row) for row in result.rows["truths"]]
        known = {(each.model, each.cores, each.change): each for each in truths}
        held = []
        for check in (check_of(row) for row in result.rows["checks"]):
            setting = check.setting
            truth = known[setting.model, setting.cores, setting.change]
            held.append(Held(check, truth.undone() if setting.is_undone else truth))
        return cls(truths, held)

    def usual(self) -> list[Held]:
        """The comparisons of all changes but the slight ones."""
        return [each for each in self.held if each.check.setting.change != SLIGHT]

    def slight(self) -> list[Held]:
        """The comparisons of slight changes whose truth is about what was wanted."""
        return [each for each in self.held if each.truth.is_slight]


def check_of(row: Mapping[str, Any]) -> Check:
    """The comparison of a row; a row holds the setting in the same object."""
    left = dict(row)
    names = ("load", "cores", "model", "change", "is_undone")
    setting = Setting(**{name: left.pop(name) for name in names})
    return Check(setting, **left)


def row_of(check: Check) -> dict[str, Any]:
    row = asdict(check)
    return {**row.pop("setting"), **row}


def read_check(setting: Setting, document: Mapping[str, Any], seconds: float) -> Check:
    """What the JSON of `modelperf compare` says of its only case."""
    (case,) = document["cases"]
    parts = len(case.get("parts") or ())
    # Older releases judge whole models only, and do not say so.
    how = case.get("how") or DUET
    p50 = next((each for each in case["metrics"] if each["name"] == "latency_p50"), None)
    failure = case["failure"]
    if p50 is None:
        if failure is None and how != PLAN:
            failure = f"p50 was not judged, the case is {case['verdict']}"
        verdict = "passed" if how == PLAN and failure is None else None
        return Check(setting, how, verdict, None, None, None, parts, seconds, failure)
    low, high = p50["interval"] or (None, None)
    ratio, low, high = (
        None if each is None else round(each, 5) for each in (p50["ratio"], low, high)
    )
    return Check(setting, how, p50["verdict"], ratio, low, high, parts, seconds, failure)


# -- tables


def tables(result: Result) -> dict[str, str]:
    found = Found.of(result)
    return {
        "parts": load_table(found),
        "parts short": short_table(found),
        "parts models": _group_table("model", found, lambda setting: setting.model),
        "parts changes": _group_table("change", found, _direction),
        "parts truths": truth_table(found),
    }


def _by_place(found: Found) -> Iterator[tuple[str, int, Sequence[Held], Sequence[Held]]]:
    """For each load and core count the usual comparisons and the slight ones."""
    for place in _places(found.held):
        usual, slight = (
            [each for each in some if (each.check.setting.load, each.check.setting.cores) == place]
            for some in (found.usual(), found.slight())
        )
        yield (*place, usual, slight)


def short_table(found: Found) -> str:
    """What the first page shows of each load and core count."""
    rows = [
        (
            load,
            str(cores),
            _near_of(usual),
            _meeting(usual),
            _median_error(usual),
            str(sum(each.is_false_alarm for each in usual)),
            _slight_found(slight),
            _median_seconds(slight),
        )
        for load, cores, usual, slight in _by_place(found)
    ]
    header = (
        "machine", "cores", "parts near the truth", "intervals that meet it", "median error",
        "false alarms", "0.5 % more: found", "median s",
    )  # fmt: skip
    return markdown(header, rows)


def load_table(found: Found) -> str:
    """A line for each load and core count."""
    rows = []
    for load, cores, usual, slight in _by_place(found):
        rows.append(
            (
                load,
                str(cores),
                *_counts(usual),
                _slight_found(slight),
                f"{SLIGHT_SECONDS[load]:g}",
                _median_seconds(slight),
            )
        )
    header = (
        "load", "cores", *_COUNTED, "+0.5 %: found", "+0.5 %: s of rounds",
        "+0.5 %: median s of the command",
    )  # fmt: skip
    return markdown(header, rows)


_COUNTED = (
    "comparisons", "by plan", "by parts", "by duet", "parts near the truth", "truth not sure",
    "intervals that meet it", "median error", "false alarms", "wrong passes", "open",
    "median s of the command",
)  # fmt: skip


def _counts(held: Sequence[Held]) -> tuple[str, ...]:
    """The figures of these comparisons that every table shows."""
    ways = [sum(each.check.how == how for each in held) for how in (PLAN, PARTS, DUET)]
    unsure = [each for each in held if each.check.how == PARTS and not each.truth.is_known]
    return (
        str(len(held)),
        *map(str, ways),
        _near_of(held),
        str(len(unsure)),
        _meeting(held),
        _median_error(held),
        str(sum(each.is_false_alarm for each in held)),
        str(sum(each.is_wrong_pass for each in held)),
        str(_verdicts(held, "inconclusive")),
        _median_seconds(held),
    )


def _near_of(held: Sequence[Held]) -> str:
    near = _near(held)
    return f"{sum(near)} of {len(near)}" if near else "-"


def _meeting(held: Sequence[Held]) -> str:
    meets = _meets(held)
    return f"{sum(meets)} of {len(meets)}" if meets else "-"


def _median_error(held: Sequence[Held]) -> str:
    errors = [
        abs(each.error) for each in held if each.check.how == PARTS and each.error is not None
    ]
    return f"{100 * statistics.median(errors):.2f} %" if errors else "-"


def _slight_found(slight: Sequence[Held]) -> str:
    return f"{_verdicts(slight, 'regressed')} of {len(slight)}" if slight else "-"


def _group_table(head: str, found: Found, key: Callable[[Setting], str]) -> str:
    """A line for each group of comparisons."""
    groups: dict[str, list[Held]] = {}
    for each in found.usual():
        groups.setdefault(key(each.check.setting), []).append(each)
    return markdown((head, *_COUNTED), [(name, *_counts(held)) for name, held in groups.items()])


def truth_table(found: Found) -> str:
    """A line for each model, core count and change, with what parts said on a quiet machine."""
    rows = []
    for truth in found.truths:
        if truth.ratio is None or truth.low is None or truth.high is None:
            continue
        told = [
            each.check.figure
            for each in found.held
            if each.truth == truth
            and each.check.setting.load == QUIET
            and each.check.figure is not None
        ]
        ways = sorted({each.check.how for each in found.held if each.truth == truth})
        rows.append(
            (
                truth.model,
                truth.change,
                str(truth.cores),
                "-" if truth.before_ms is None else f"{truth.before_ms:.1f}",
                _percent(truth.ratio),
                f"{_percent(truth.low)} to {_percent(truth.high)}",
                _percent(statistics.median(told)) if told else "-",
                ", ".join(ways) or "-",
            )
        )
    header = (
        "model", "change", "cores", "ms before", "truth", "99 % interval", "told, quiet",
        "judged by",
    )  # fmt: skip
    return markdown(header, rows, "llrrrrrl")


# -- expectations


def expectations(result: Result) -> tuple[Expectation, ...]:
    found = Found.of(result)
    usual = found.usual()
    expected = []
    settled = [
        truth.is_settled(PRECISION, TRUTH_SECONDS)
        for truth in found.truths
        if truth.ratio is not None
    ]
    for what, right, least in (
        ("truths within 0.3 %, or of ten minutes", settled, 1),
        (
            "figures of parts within 0.3 % of the model or a third of the true difference",
            _near(usual),
            MIN_NEAR,
        ),
        (
            "the same, of figures whose own interval is within 0.3 %",
            _near(each for each in usual if each.is_exact),
            MIN_NEAR,
        ),
        ("intervals of parts that meet that of the truth", _meets(usual), MIN_MEETING),
    ):
        if right:
            share = "all" if least == 1 else f"at least {100 * least:g} %"
            said = f"{sum(right)} of {len(right)}"
            expected.append(Expectation(what, share, said, sum(right) >= least * len(right)))
    for what, wrong in (
        ("alarms that contradict the truth at 3 %", [each.is_false_alarm for each in usual]),
        ("passes that contradict the truth at 3 %", [each.is_wrong_pass for each in usual]),
        ("comparisons that failed", [each.check.failure is not None for each in found.held]),
    ):
        if wrong:
            said = f"{sum(wrong)} of {len(wrong)}"
            expected.append(Expectation(what, "none", said, not any(wrong)))
    for load, least in MIN_SLIGHT_FOUND.items():
        here = [each for each in found.slight() if each.check.setting.load == load]
        if here:
            count = _verdicts(here, "regressed")
            limit = f"{SLIGHT_SECONDS[load]:g} s of rounds"
            what = f"0.5 % more, tolerance 0.2 %, {load}: found in {limit}"
            share = f"at least {100 * least:g} %"
            said = f"{count} of {len(here)}; median of the command {_median_seconds(here)} s"
            expected.append(Expectation(what, share, said, count >= least * len(here)))
    return tuple(expected)


def _near(held: Iterable[Held]) -> list[bool]:
    """Whether each figure of parts is near its truth, where that is known."""
    return [each.is_near for each in held if each.check.how == PARTS and each.is_near is not None]


def _meets(held: Iterable[Held]) -> list[bool]:
    """Whether each interval of parts meets that of its truth."""
    return [
        each.meets_truth
        for each in held
        if each.check.how == PARTS and each.meets_truth is not None
    ]


def _direction(setting: Setting) -> str:
    return f"{setting.change}, undone" if setting.is_undone else setting.change


def _places(held: Iterable[Held]) -> list[tuple[str, int]]:
    seen = {(each.check.setting.load, each.check.setting.cores) for each in held}
    return sorted(seen, key=lambda place: (LOADS.index(place[0]), place[1]))


def _verdicts(held: Iterable[Held], verdict: str) -> int:
    return sum(each.check.verdict == verdict for each in held)


def _median_seconds(held: Sequence[Held]) -> str:
    return f"{statistics.median(each.check.seconds for each in held):.1f}" if held else "-"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2f} %"
