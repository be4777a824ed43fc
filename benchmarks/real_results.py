"""Records of the comparisons of real models, their tables and expectations."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from expected import Expectation, expect_most, expect_none, expect_share, rate_text
from loads import QUIET, TAKEN
from results import Result, short_conditions
from shown import count_of, markdown, median_of

UNCHANGED, LOAD_5 = "no change", "load of 5 %"
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
class Compared(Setting):
    """One comparison: the verdicts of the case, p50 and p95; the ratio of p50 and its interval.

    `how` says by what p50 was judged: the plan, the parts that changed, or the duet.
    """

    verdict: str
    p50: str
    p95: str
    seconds: float
    rounds: int
    ratio: float | None
    low: float | None
    high: float | None
    how: str = "duet"

    @property
    def setting(self) -> Setting:
        return Setting(self.machine, self.cores, self.model, self.change)


@dataclass(frozen=True, slots=True)
class Reference:
    """The true ratio of a variant, from a long duet without added noise.

    `rows` is the size of the load; `before_ms` is the time of the model itself.
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
    """Everything that one run measured: models, and comparisons of unchanged and of slower ones.

    Only variants that are known to be about 5 % slower count.
    """

    models: Sequence[RealModel]
    unchanged: Sequence[Compared]
    slower: Sequence[Compared]

    @classmethod
    def of(cls, result: Result) -> Found:
        made = result.read("comparisons", Compared)
        references = result.read("references", Reference)
        known = {(r.model, r.cores, r.change) for r in references if r.is_5_slower}
        return cls(
            result.read("models", RealModel),
            [each for each in made if each.change == UNCHANGED],
            [each for each in made if (each.model, each.cores, each.change) in known],
        )

    def where(
        self, machine: str, cores: int, models: Collection[str] | None = None
    ) -> tuple[list[Compared], list[Compared]]:
        """The comparisons of both kinds in a place, of these models if some are named."""

        def is_here(each: Compared) -> bool:
            is_place = (each.machine, each.cores) == (machine, cores)
            return is_place and (models is None or each.model in models)

        return list(filter(is_here, self.unchanged)), list(filter(is_here, self.slower))


def tables(result: Result) -> dict[str, str]:
    found = Found.of(result)
    return {
        "real": setting_table(found),
        "real glance": totals(found),
        "real cost": f"{cost_table(found)}\n\nMeasured {short_conditions(result)}.",
    }


def setting_table(found: Found) -> str:
    """A line for each machine and core count."""
    rows = []
    for machine, cores in places(found.unchanged):
        same, slower = found.where(machine, cores)
        alarms = [verdicts_of(same, each) for each in ("passed", "regressed", "inconclusive")]
        answers = (("regressed",), ("passed", "improved"), ("inconclusive",))
        hits = [verdicts_of(slower, *each) for each in answers]
        name = "as it is" if machine == QUIET else machine
        rows.append((name, cores, *alarms, _median(same), *hits, _median(slower)))
    header = (
        "machine", "cores", "unchanged: passed", "false alarms", "open", "median s",
        "+5 %: found", "passed", "open", "median s",
    )  # fmt: skip
    return markdown(header, rows)


def totals(found: Found) -> str:
    """What a reader would add up."""
    same, slower = found.unchanged, found.slower
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
    return (
        f"Of {len(timed)} timed comparisons {alarms} raised a false alarm: the rate is "
        f"{rate_text(alarms, len(timed))}."
    )


def cost_table(found: Found) -> str:
    """The time of a run of many models: the median of a check on one quiet core, multiplied."""
    rows = []
    for name, models in _sizes(found):
        if not models:
            continue
        cells = []
        for here in found.where(QUIET, 1, models):
            seconds = statistics.median(each.seconds for each in here) if here else None
            cells += ["-" if seconds is None else _duration(n * seconds) for n in RUN_SIZES]
        rows.append((name, *cells))
    first, *others = map(str, RUN_SIZES)
    titles = (f"unchanged: {first}", *others, f"5 % slower: {first}", *others)
    return markdown(("one inference", *titles), rows)


def _duration(seconds: float) -> str:
    value, unit = (seconds, "s") if seconds < 60 else (seconds / 60, "min")
    return f"{value:.{int(value < 10)}f} {unit}"


def expectations(result: Result) -> tuple[Expectation, ...]:
    return tuple(_expectations(Found.of(result)))


def _expectations(found: Found) -> Iterator[Expectation]:
    same, slower = found.unchanged, found.slower
    yield expect_none("unchanged, called slower", (c.verdict == "regressed" for c in same))
    if slower:
        yield expect_none(
            "5 % slower, passed", (c.verdict in {"passed", "improved"} for c in slower)
        )
    for what, some, answer, limits in (
        ("unchanged, passed", same, "passed", MIN_PASSED),
        ("5 % slower, found", slower, "regressed", MIN_FOUND),
    ):
        for (machine, cores), share in limits.items():
            here = [each for each in some if (each.machine, each.cores) == (machine, cores)]
            where = "machine as it is" if machine == QUIET else f"{TAKEN} of each core"
            on = "one core" if cores == 1 else f"{cores} cores"
            if here:
                met = (each.verdict == answer for each in here)
                yield expect_share(f"{what}: {on}, {where}", met, share)
    for (name, models), (_, limit) in zip(_sizes(found), SIZES, strict=False):
        took = [c.seconds for c in same if c.model in models and c.machine == QUIET]
        if took:
            what = f"check of an unchanged model, {name}: median, machine as it is"
            yield expect_most(what, statistics.median(took), limit)


def _sizes(found: Found) -> list[tuple[str, set[str]]]:
    """The size classes, each with the names of its models."""
    bounds = [0.0, *(high for high, _ in SIZES), math.inf]
    names = [
        f"up to {bounds[1]:g} ms",
        *(f"{low:g} to {high:g} ms" for low, high in pairwise(bounds[1:-1])),
        f"above {bounds[-2]:g} ms",
    ]
    return [
        (name, {each.name for each in found.models if low < each.one_core_ms <= high})
        for name, (low, high) in zip(names, pairwise(bounds), strict=True)
    ]


def places(comparisons: Iterable[Compared]) -> list[tuple[str, int]]:
    seen = {(each.machine, each.cores) for each in comparisons}
    return sorted(seen, key=lambda place: (place[0] != QUIET, place[1]))


def _count(comparisons: Iterable[Compared], *verdicts: str) -> int:
    return sum(each.verdict in verdicts for each in comparisons)


def verdicts_of(comparisons: Iterable[Compared], *verdicts: str) -> str:
    return count_of(each.verdict in verdicts for each in comparisons)


def _median(comparisons: Iterable[Compared]) -> str:
    return median_of(each.seconds for each in comparisons)
