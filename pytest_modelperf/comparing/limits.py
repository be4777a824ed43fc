"""Tolerances: how much worse than its baseline each figure of a case may be."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import Remedy, UsageError
from pytest_modelperf.graph.structure import Phase
from pytest_modelperf.stats.records import PERCENTS
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import as_float, suggestion

DEFAULT_TOLERANCE = 0.03
# The tail that is judged by default. It has few samples, so its tolerance is larger.
DEFAULT_TAIL, DEFAULT_TAIL_TOLERANCE = 95.0, 0.10

PERCENT_NAMES = {f"p{percent:g}": percent for percent in PERCENTS}
# The counts that are judged. They are exact, so their default tolerance is 0.
_COUNTS = ("macs", "params")
# Further figures, by their names in tolerances, and their default tolerances.
LOAD, FIRST, MEMORY, SIZE, OUTPUTS = "load", "first", "memory", "size", "outputs"
# The exact work of a call of a program.
WORK = "work"
_FIGURE_SHARES: Mapping[str, float] = {LOAD: 0.15, FIRST: 0.15, MEMORY: 0.05, SIZE: 0.05, WORK: 0.0}
# The default limit for outputs of the same model, which allows for rounding.
DEFAULT_OUTPUTS = 0.001
# The difference of outputs is judged only if it is named, because it follows from the weights.
_NAMED = (*_FIGURE_SHARES, OUTPUTS)
# The medians of the phases of a generation, by their names in tolerances.
PHASE_WORDS: Mapping[str, Phase] = {"ttft": Phase.PREFILL, "token": Phase.STEP}
# Every figure that a tolerance can name.
TOLERANCE_WORDS = (*PERCENT_NAMES, *_COUNTS, *_NAMED, *PHASE_WORDS)
# Memory may always grow by this much, because the system allocator grows in steps.
LEAST_MEMORY_BYTES = 4 << 20
# Unless a tolerance names the size, a file may grow by this much: exporters write notes into it.
LEAST_SIZE_BYTES = 1 << 20
_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*(%?)\s*", re.IGNORECASE)
# Larger than the relative error of a share, and of its product with a count.
_ROUNDING = 1e-15


_MEDIAN = 50.0


class Tolerances(Struct, frozen=True):
    """How much slower each judged percentile may be, as a share: 0.03 means 3 %.

    `named` are the tails that the user named, and a comparison waits until these are decided. Other
    tails get no more rounds than the median. `counts` are the tolerances of MACs and parameters
    that are not 0. `figures` are those of other figures that the user named. They are awaited,
    too. `phases` are those of the median of each phase of a generation, by the names in
    `PHASE_WORDS`.
    """

    shares: tuple[tuple[float, float], ...] = (
        (_MEDIAN, DEFAULT_TOLERANCE),
        (DEFAULT_TAIL, DEFAULT_TAIL_TOLERANCE),
    )
    named: frozenset[float] = frozenset()
    counts: tuple[tuple[str, float], ...] = ()
    figures: tuple[tuple[str, float], ...] = ()
    phases: tuple[tuple[str, float], ...] = ()

    @property
    def percents(self) -> tuple[float, ...]:
        return tuple(percent for percent, _ in self.shares)

    @property
    def awaited(self) -> tuple[float, ...]:
        """The percentiles that must be decided: the median, and each named tail."""
        return tuple(p for p in self.percents if p == _MEDIAN or p in self.named)

    def of(self, percent: float) -> float:
        """Return the tolerance of a percentile, or that of the median if it is not judged."""
        shares = dict(self.shares)
        return shares.get(percent, shares.get(_MEDIAN, self.shares[0][1]))

    def of_count(self, name: str) -> float:
        """Return the tolerance of `macs` or `params`."""
        return dict(self.counts).get(name, 0.0)

    def of_figure(self, name: str) -> float:
        """Return the tolerance of a figure that is neither a percentile nor a count."""
        default = _FIGURE_SHARES[name]
        # A first inference is an inference, so it may be as much slower as the median.
        if name == FIRST:
            default = max(default, self.of(_MEDIAN))
        return dict(self.figures).get(name, default)

    def of_phase(self, phase: Phase | None) -> Tolerances:
        """Return the tolerances of a case of this phase, whose median has the phase's share."""
        given = {PHASE_WORDS[word]: share for word, share in self.phases}
        if phase is None or phase not in given:
            return replace(self, phases=())
        shares = {**dict(self.shares), _MEDIAN: given[phase]}
        if DEFAULT_TAIL not in self.named:
            shares[DEFAULT_TAIL] = max(given[phase], DEFAULT_TAIL_TOLERANCE)
        return replace(self, shares=tuple(sorted(shares.items())), phases=())

    def without(self, name: str) -> Tolerances:
        """Return the tolerances without this figure."""
        return replace(self, figures=tuple(each for each in self.figures if each[0] != name))

    @property
    def outputs(self) -> float | None:
        """How far outputs may differ, as a share of their largest value. None: not judged."""
        return dict(self.figures).get(OUTPUTS)

    def names(self, figure: str) -> bool:
        """Whether the user named this figure."""
        return figure in dict(self.figures)


def check_static(tolerances: Tolerances) -> None:
    """Raise UsageError for a tolerance of a figure that needs a run, because nothing runs."""
    words = [name for name, percent in PERCENT_NAMES.items() if percent in tolerances.named]
    words += [name for name, _ in (*tolerances.figures, *tolerances.phases) if name != SIZE]
    if words:
        raise UsageError(
            f"a tolerance of {words[0]} needs a run of the models.",
            Remedy(f"Leave out {words[0]}, or {{static}}."),
        )


def read_tolerances(value: object, place: str) -> Tolerances:
    """Read tolerances from one share for the median, or from one share for each figure.

    `0.03`, `"3 %"`, `"p50=0.02, p99=0.1"` or `{"p50": 0.02, "macs": 0.01}`. Figures that are not
    named keep their default, and the tolerance of a default tail is at least that of the median.
    """
    if isinstance(value, str) and "=" in value:
        value = _split_pairs(value, place)
    if not isinstance(value, Mapping):
        return _with_default_tail({_MEDIAN: read_share(value, place)}, {})
    given: dict[float, float] = {}
    others: dict[str, float] = {}
    for name, share in value.items():
        if name in {*_COUNTS, *_NAMED, *PHASE_WORDS}:
            others[name] = read_share(share, f"{place}: {name}")
            continue
        percent = _read_percent(str(name), place)
        if percent in given:
            raise UsageError(f"{place}: p{percent:g} is given twice: give it once.")
        given[percent] = read_share(share, f"{place}: {name}")
    if not (given or others):
        raise UsageError(f"{place} names no figure: give a share such as 0.03, which is 3 %.")
    return _with_default_tail(given, others)


def read_median_tolerance(value: str, place: str) -> float:
    """Read the tolerance of the median, which may be named: `0.03`, `"3 %"` or `p50=0.03`."""
    if "=" not in value:
        return read_share(value, place)
    given = _split_pairs(value, place)
    found = read_tolerances(given, place)
    others = [name for name in given if PERCENT_NAMES.get(name) != _MEDIAN]
    if others:
        raise UsageError(
            f"{place}: the median alone is judged, not {others[0]}: give p50 or a share."
        )
    return found.of(_MEDIAN)


def _with_default_tail(given: Mapping[float, float], others: Mapping[str, float]) -> Tolerances:
    median = given.get(_MEDIAN, DEFAULT_TOLERANCE)
    tail = max(median, DEFAULT_TAIL_TOLERANCE)
    shares = {_MEDIAN: median, DEFAULT_TAIL: tail, **given}
    named = frozenset(given) - {_MEDIAN}
    counts, figures, phases = (
        tuple(sorted((word, others[word]) for word in words if word in others))
        for words in (_COUNTS, _NAMED, PHASE_WORDS)
    )
    return Tolerances(tuple(sorted(shares.items())), named, counts, figures, phases)


def _read_percent(name: str, place: str) -> float:
    percent = PERCENT_NAMES.get(name.replace("_", "."))
    if percent is None:
        raise UsageError(
            f"{place}: {printable(name)!r} is not a figure with a tolerance."
            f"{suggestion(name, TOLERANCE_WORDS)} There are: {', '.join(TOLERANCE_WORDS)}."
        )
    return percent


def _split_pairs(text: str, place: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        if name.strip() in pairs:
            name = printable(name.strip())
            raise UsageError(f"{place}: {name} is given twice: give it once.")
        pairs[name.strip()] = share
    return pairs


def allowed_growth(count: int, share: float) -> float:
    """Return how much this share allows an exact figure to grow, rounded up a little."""
    # As floats, the product of 0.29 and 100 is 28.999999999999996.
    return share * count * (1.0 + _ROUNDING)


def read_share(value: object, place: str) -> float:
    is_percent = False
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value)
        share = None if match is None else float(match[1])
        is_percent = match is not None and bool(match[2])
    else:
        share = as_float(value)
    if share is None or not 0 <= share < math.inf:
        # In TOML, the dot of p99.9 separates two keys.
        hint = " Write p99.9 as p99_9." if isinstance(value, Mapping) else ""
        raise UsageError(f"{place} takes a share such as 0.03, which is 3 %; not {value!r}.{hint}")
    if is_percent:
        return share / 100
    if share >= 1:
        # A user who types 3 means 3 %. Read as 300 %, it would let everything pass silently.
        raise UsageError(
            f"{place} takes a share such as 0.03, which is 3 %; {share:g} would be "
            f'{100 * share:g} %. If that is meant, write "{100 * share:g} %".'
        )
    return share
