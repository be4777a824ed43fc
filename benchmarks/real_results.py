"""Records of the comparisons of real models, their tables and expectations."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from results import Expectation, Result, markdown, short_conditions
from verdicts import CONFIDENCE, highest_rate

QUIET, TAKEN = "quiet", "40 % taken"
UNCHANGED, LOAD_5, LOAD_10 = "no change", "load of 5 %", "load of 10 %"
BLOCK, DECOMPOSED = "one block more", "decomposed"
CHANGES = (UNCHANGED, LOAD_5, LOAD_10, BLOCK, DECOMPOSED)
# A variant counts as 5 % slower if its reference and the width of its interval are within these.
SLOWER_BY_5 = (1.045, 1.06)
WIDEST_REFERENCE = 0.02
# Size classes: the most milliseconds of an inference on one core, and of a check in seconds.
SIZES = ((10.0, 1.2), (40.0, 3.0), (100.0, 8.0))
# Numbers of models that the time of a run is given for.
RUN_SIZES = (1, 10, 100)
# Expected share of unchanged models that pass, by machine and cores.
MIN_PASSED = {(QUIET, 1): 0.97, (QUIET, 2): 0.95, (TAKEN, 1): 0.95, (TAKEN, 2): 0.85}
# Expected share of 5 % slowdowns that are found.
MIN_FOUND = {(QUIET, 1): 0.95, (TAKEN, 1): 0.85}


@dataclass(frozen=True, slots=True)
class Setting:
    """The conditions of one comparison: machine, cores, model, and change."""

    machine: str
    cores: int
    model: str
    change: str


@dataclass(frozen=True, slots=True)
class Compared:
    """One comparison: the verdicts of the case, p50 and p95; the ratio of p50 and its interval.

    `how` says by what p50 was judged: the plan, the parts that changed, or the duet.
    """

    setting: Setting
    verdict: str
    p50: str
    p95: str
    seconds: float
    rounds: int
    ratio: float | None
    low: float | None
    high: float | None
    how: str = "duet"


@dataclass(frozen=True, slots=True)
class Reference:
    """The true ratio of a variant, from a long duet without added noise.

    `rows` is the size of the load; `before_ms` is the time of the model itself. The reference has
    no ratio if the change does not apply to the model.
    """

    model: str
    cores: int
    change: str
    rows: int | None
    ratio: float | None
    low: float | None
    high: float | None
    rounds: int
    before_ms: float | None

    @property
    def is_5_slower(self) -> bool:
        if self.ratio is None or self.low is None or self.high is None:
            return False
        is_known = self.high - self.low <= WIDEST_REFERENCE
        return is_known and SLOWER_BY_5[0] <= self.ratio <= SLOWER_BY_5[1]


@dataclass(frozen=True, slots=True)
class RealModel:
    """A model of the collection: its nodes, and the time of an inference on one core.

    `rebuild_seconds` is the time to rebuild its twin, which a check does first.
    """

    name: str
    nodes: int
    one_core_ms: float
    rebuild_seconds: float


@dataclass(frozen=True, slots=True)
class Found:
    """Everything that one run measured."""

    models: Sequence[RealModel]
    references: Sequence[Reference]
    comparisons: Sequence[Compared]

    @classmethod
    def of(cls, result: Result) -> Found:
        return cls(
            [RealModel(**row) for row in result.rows["models"]],
            [Reference(**row) for row in result.rows["references"]],
            [compared_of(dict(row)) for row in result.rows["comparisons"]],
        )

    def unchanged(self) -> list[Compared]:
        return [each for each in self.comparisons if each.setting.change == UNCHANGED]

    def slower_by_5(self) -> list[Compared]:
        """The comparisons with variants that are known to be about 5 % slower."""
        known = {(r.model, r.cores, r.change) for r in self.references if r.is_5_slower}
        return [
            each
            for each in self.comparisons
            if (each.setting.model, each.setting.cores, each.setting.change) in known
        ]


def compared_of(row: dict[str, object]) -> Compared:
    """The comparison of a row; a row holds the setting in the same object."""
    names = ("machine", "cores", "model", "change")
    setting = Setting(**{name: row.pop(name) for name in names})  # type: ignore[arg-type]  # JSON
    return Compared(setting, **row)  # type: ignore[arg-type]  # the same


def tables(result: Result) -> dict[str, str]:
    found = Found.of(result)
    return {
        "real": setting_table(found),
        "real glance": totals(found),
        "real times": time_table(found),
        "real cost": f"{cost_table(found)}\n\nMeasured {short_conditions(result)}.",
        "real models": model_table(found),
        "real variants": variant_table(found),
    }


def setting_table(found: Found) -> str:
    """A line for each machine and core count."""
    rows = []
    for machine, cores in _places(found.comparisons):
        same = _at(found.unchanged(), machine, cores)
        slower = _at(found.slower_by_5(), machine, cores)
        rows.append(
            (
                "as it is" if machine == QUIET else machine,
                str(cores),
                _of(same, "passed"),
                _of(same, "regressed"),
                _of(same, "inconclusive"),
                _median(same),
                _of(slower, "regressed"),
                _of(slower, "passed", "improved"),
                _of(slower, "inconclusive"),
                _median(slower),
            )
        )
    header = (
        "machine", "cores", "unchanged: passed", "false alarms", "open", "median s",
        "+5 %: found", "passed", "open", "median s",
    )  # fmt: skip
    return markdown(header, rows, "l" + "r" * (len(header) - 1))


def totals(found: Found) -> str:
    """What a reader would add up."""
    same, slower = found.unchanged(), found.slower_by_5()
    timed = [each for each in same if each.how != "plan"]
    text = (
        f"{len(found.models)} real architectures with new weights: {_count(same, 'passed')} of "
        f"{len(same)} checks passed. In {len(same) - len(timed)} of them the plan was unchanged, "
        "so nothing was timed."
    )
    if timed:
        text += f" {alarm_rate(timed)}"
    if slower:
        text += (
            f" Of {len(slower)} slower variants {_count(slower, 'regressed')} were caught and "
            f"{_count(slower, 'passed', 'improved')} passed."
        )
    return text


def alarm_rate(timed: Sequence[Compared]) -> str:
    """Return the false alarms among timed comparisons, and the highest rate that fits them.

    Comparisons that a plan settled are not counted.
    """
    alarms = _count(timed, "regressed")
    most = 100 * highest_rate(alarms, len(timed))
    return (
        f"Of {len(timed)} timed comparisons {alarms} raised a false alarm: the rate is at most "
        f"{most:.2g} % ({100 * CONFIDENCE:g} % confidence)."
    )


def time_table(found: Found) -> str:
    """The seconds of a check by the size of the model."""
    rows = []
    for name, is_in in _sizes():
        models = {model.name for model in found.models if is_in(model.one_core_ms)}
        for machine, cores in _places(found.comparisons):
            groups = [
                [each for each in _at(some, machine, cores) if each.setting.model in models]
                for some in (found.unchanged(), found.slower_by_5())
            ]
            if groups[0]:
                where = "as it is" if machine == QUIET else machine
                rows.append((name, where, str(cores), *map(_median, groups)))
    header = ("on one core", "machine", "cores", "unchanged, median s", "+5 %, median s")
    return markdown(header, rows, "llrrr")


def cost_table(found: Found) -> str:
    """The time of a run of many models: the median of a check on one quiet core, multiplied."""
    rows = []
    for name, is_in in _sizes():
        models = {model.name for model in found.models if is_in(model.one_core_ms)}
        if not models:
            continue
        cells = []
        for some in (found.unchanged(), found.slower_by_5()):
            here = [each for each in _at(some, QUIET, 1) if each.setting.model in models]
            seconds = statistics.median(each.seconds for each in here) if here else None
            cells += ["-" if seconds is None else _duration(n * seconds) for n in RUN_SIZES]
        rows.append((name, *cells))
    first, *others = map(str, RUN_SIZES)
    titles = [
        title for kind in ("unchanged", "5 % slower") for title in (f"{kind}: {first}", *others)
    ]
    return markdown(("one inference", *titles), rows, "l" + "r" * len(titles))


def _duration(seconds: float) -> str:
    value, unit = (seconds, "s") if seconds < 60 else (seconds / 60, "min")
    return f"{value:.{int(value < 10)}f} {unit}"


def model_table(found: Found) -> str:
    """A line for each model: all machines and core counts together."""
    rows = []
    for model in sorted(found.models, key=lambda each: each.one_core_ms):
        own = [
            [each for each in some if each.setting.model == model.name]
            for some in (found.unchanged(), found.slower_by_5())
        ]
        quiet = [each for each in own[0] if each.setting.machine == QUIET]
        taken = [each for each in own[0] if each.setting.machine == TAKEN]
        rows.append(
            (
                model.name,
                str(model.nodes),
                f"{model.one_core_ms:.1f}",
                f"{model.rebuild_seconds:.2f}",
                _of(quiet, "passed"),
                _of(taken, "passed"),
                _of(own[0], "regressed"),
                _of(own[1], "regressed"),
                _of(own[1], "passed", "improved"),
                _median(own[0]),
            )
        )
    header = (
        "model", "nodes", "ms on one core", "twin rebuilt, s", "unchanged: passed", "under noise",
        "false alarms", "+5 %: found", "passed", "median s",
    )  # fmt: skip
    return markdown(header, rows)


def variant_table(found: Found) -> str:
    """A line for each variant, with its reference and its verdicts."""
    rows = []
    for each in found.references:
        if each.ratio is None:
            continue
        own = [
            made
            for made in found.comparisons
            if (made.setting.model, made.setting.cores, made.setting.change)
            == (each.model, each.cores, each.change)
        ]
        rows.append(
            (
                each.model,
                each.change,
                str(each.cores),
                _percent(each.ratio),
                f"{_percent(each.low)} to {_percent(each.high)}",
                _of(own, "regressed"),
                _of(own, "passed", "improved"),
                _of(own, "inconclusive"),
            )
        )
    header = ("model", "change", "cores", "slower by", "95 % interval", "found", "passed", "open")
    return markdown(header, rows, "llrrrrrr")


def expectations(result: Result) -> tuple[Expectation, ...]:
    found = Found.of(result)
    same, slower = found.unchanged(), found.slower_by_5()
    expected = [
        Expectation(
            "unchanged, called slower",
            "none",
            _of(same, "regressed"),
            not _count(same, "regressed"),
        )
    ]
    if slower:
        passed = _count(slower, "passed", "improved")
        said = f"{passed} of {len(slower)}"
        expected.append(Expectation("5 % slower, passed", "none", said, not passed))
    for what, some, answer, limits in (
        ("unchanged, passed", same, "passed", MIN_PASSED),
        ("5 % slower, found", slower, "regressed", MIN_FOUND),
    ):
        for (machine, cores), share in limits.items():
            here = _at(some, machine, cores)
            if here:
                count = _count(here, answer)
                where = "machine as it is" if machine == QUIET else f"{TAKEN} of each core"
                expected.append(
                    Expectation(
                        f"{what}: {_cores(cores)}, {where}",
                        f"at least {100 * share:g} %",
                        f"{count} of {len(here)}",
                        count >= share * len(here),
                    )
                )
    return (*expected, *_time_expectations(found))


def _time_expectations(found: Found) -> Iterable[Expectation]:
    """The median time of a comparison without a change and without noise, by size class."""
    for (name, is_in), (_, limit) in zip(_sizes(), SIZES, strict=False):
        models = {model.name for model in found.models if is_in(model.one_core_ms)}
        here = [
            each.seconds
            for each in found.unchanged()
            if each.setting.model in models and each.setting.machine == QUIET
        ]
        if here:
            took = statistics.median(here)
            what = f"check of an unchanged model, {name}: median, machine as it is"
            yield Expectation(what, f"at most {limit:g} s", f"{took:.1f} s", took <= limit)


def _sizes() -> list[tuple[str, Callable[[float], bool]]]:
    """The size classes, each with a test of the milliseconds of a model."""
    classes: list[tuple[str, Callable[[float], bool]]] = []
    low = 0.0
    for high, _ in SIZES:
        name = f"{low:g} to {high:g} ms" if low else f"up to {high:g} ms"
        classes.append((name, lambda ms, low=low, high=high: low < ms <= high))  # type: ignore[misc]  # bound as they are now
        low = high
    return [*classes, (f"above {low:g} ms", lambda ms: ms > low)]


def _places(comparisons: Iterable[Compared]) -> list[tuple[str, int]]:
    seen = {(each.setting.machine, each.setting.cores) for each in comparisons}
    return sorted(seen, key=lambda place: (place[0] != QUIET, place[1]))


def _at(comparisons: Iterable[Compared], machine: str, cores: int) -> list[Compared]:
    return [
        each
        for each in comparisons
        if (each.setting.machine, each.setting.cores) == (machine, cores)
    ]


def _count(comparisons: Iterable[Compared], *verdicts: str) -> int:
    return sum(each.verdict in verdicts for each in comparisons)


def _of(comparisons: Sequence[Compared], *verdicts: str) -> str:
    if not comparisons:
        return "-"
    return f"{_count(comparisons, *verdicts)} of {len(comparisons)}"


def _median(comparisons: Sequence[Compared]) -> str:
    if not comparisons:
        return "-"
    return f"{statistics.median(each.seconds for each in comparisons):.1f}"


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def _cores(cores: int) -> str:
    return "one core" if cores == 1 else f"{cores} cores"
