"""Budgets: the absolute limits of a case, read from markers and tables."""

from __future__ import annotations

import contextlib
import enum
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.comparing.limits import PERCENT_NAMES, read_share
from pytest_modelperf.comparing.records import IMPROVEMENT
from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.documents import MOST_FIGURE
from pytest_modelperf.graph.structure import Phase
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import parse_count
from pytest_modelperf.text.words import as_float, suggestion

_BYTES_PER_KB = 1_000
_FUNCTION = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_BYTES_PER_MB = 1_000_000


class FigureSource(enum.Enum):
    """What has to be done to know a figure."""

    FILE = "the file is read"
    INSTALLED = "the files of a distribution are read"
    PLAN = "the engine makes its plan of the model"
    RUN = "the model runs"
    HISTORY = "the model runs next to its baseline, and the history is read"
    BASELINE = "the model is compared with its baseline"
    OTHER_MODEL = "the model runs next to another one"
    ITEMS = "a generator runs"


class Figure(Struct, frozen=True):
    """A figure that a budget can be set on. `metric` is its name in reports.

    `scale` is the number of units of the metric in one unit of the budget. With `is_least`, more is
    better, and the budget is the smallest allowed value. `percent` is the percentile of a latency.
    With `takes_share`, the budget is a share. A figure with a `phase` belongs only to that phase of
    a generation. A budget with `companions` needs exactly one of these words.
    """

    metric: str
    scale: float = 1.0
    percent: float | None = None
    is_least: bool = False
    is_count: bool = False
    source: FigureSource = FigureSource.RUN
    takes_share: bool = False
    phase: Phase | None = None
    companions: tuple[str, ...] = ()

    @property
    def is_timed(self) -> bool:
        """Whether a run of the model alone gives the figure."""
        return self.source is FigureSource.RUN

    @property
    def is_change(self) -> bool:
        """Whether the figure is the change since the start of the history."""
        return self.source is FigureSource.HISTORY

    @property
    def needs_run(self) -> bool:
        """Whether something must run to know the figure. A baseline also has counts to compare."""
        return self.source not in {FigureSource.FILE, FigureSource.INSTALLED, FigureSource.BASELINE}

    @property
    def is_exact(self) -> bool:
        """Whether the figure is known without timing anything."""
        return self.source in {FigureSource.FILE, FigureSource.INSTALLED, FigureSource.PLAN}

    @property
    def is_latency(self) -> bool:
        """Whether the figure is judged by inference times, which Python code has as well."""
        return self.is_timed and (self.percent is not None or self.metric in {SLOWEST, MISSES})

    @property
    def is_of_code(self) -> bool:
        """Whether Python code has the figure, not only models."""
        is_measured = self.is_latency or self.metric == "peak_rss_bytes"
        return is_measured or self.source is FigureSource.INSTALLED

    def is_of(self, phase: Phase | None) -> bool:
        """Whether a case of this phase has the figure. A phase of None is a plain case."""
        return self.phase is None or self.phase is phase


SLOWEST, MISSES = "max_ms", "missed_deadlines"
# Each figure by its word in markers and tables. A megabyte has a million bytes.
FIGURES: Mapping[str, Figure] = {
    "latency_ms": Figure("latency_p50", percent=50.0),
    **{
        f"{name.replace('.', '_')}_ms": Figure(f"latency_{name}", percent=percent)
        for name, percent in PERCENT_NAMES.items()
    },
    "max_ms": Figure(SLOWEST),
    "deadline_ms": Figure(MISSES, companions=("misses",)),
    "real_time_factor": Figure(
        "real_time_factor", percent=50.0, companions=("audio_seconds", "frame_rate")
    ),
    "items_per_second": Figure("items_per_second", percent=50.0, is_least=True),
    "ttft_ms": Figure("ttft_ms", percent=50.0, phase=Phase.PREFILL),
    "token_ms": Figure("token_ms", percent=50.0, phase=Phase.STEP),
    "tokens_per_second": Figure("tokens_per_second", percent=50.0, is_least=True, phase=Phase.STEP),
    "cache_bytes_per_token": Figure(
        "cache_bytes_per_token", source=FigureSource.FILE, phase=Phase.STEP
    ),
    "first_item_ms": Figure("first_item_ms", percent=50.0, source=FigureSource.ITEMS),
    "item_ms": Figure("item_ms", percent=50.0, source=FigureSource.ITEMS),
    "load_ms": Figure("load_ms"),
    "first_inference_ms": Figure("first_inference_ms"),
    "peak_memory_mb": Figure("peak_rss_bytes", _BYTES_PER_MB),
    "growth_kb_per_inference": Figure("growth_bytes_per_inference", _BYTES_PER_KB),
    "macs": Figure("macs", is_count=True, source=FigureSource.FILE),
    "flops": Figure("flops", is_count=True, source=FigureSource.FILE),
    "params": Figure("params", is_count=True, source=FigureSource.FILE),
    "size_mb": Figure("size_bytes", _BYTES_PER_MB, source=FigureSource.FILE),
    "kernels": Figure("kernels", is_count=True, source=FigureSource.PLAN),
    "install_bytes": Figure(
        "install_bytes", is_count=True, source=FigureSource.INSTALLED, companions=("distribution",)
    ),
    "speedup": Figure(
        "speedup", is_least=True, source=FigureSource.OTHER_MODEL, companions=("over",)
    ),
    "drift": Figure("drift", source=FigureSource.HISTORY, takes_share=True),
    "improved_beyond": Figure(
        IMPROVEMENT, is_least=True, source=FigureSource.BASELINE, takes_share=True
    ),
}
# The words that complete a budget, each with the word of its budget.
COMPANIONS = {
    companion: word for word, figure in FIGURES.items() for companion in figure.companions
}
# The companions that are strings, each with an example.
_NAMES = {"distribution": "magika", "over": "models/encoder_fp32.onnx"}
BUDGET_WORDS = (*FIGURES, *COMPANIONS)


class Budget(Struct, frozen=True):
    """An absolute limit, in the unit of its metric or, for a change, as a ratio.

    `companion` completes it: the allowed share of misses, the seconds of one item, the name of a
    distribution, or that of another model. `by_machine` has a limit for each pattern
    of machines, in the given order. After `of_machine` it has only the one that fits.
    """

    word: str
    limit: float
    companion: float | str | None = None
    by_machine: tuple[tuple[str, float], ...] = ()

    @property
    def figure(self) -> Figure:
        return FIGURES[self.word]

    @property
    def names_function(self) -> bool:
        """Whether its companion is a Python function, as `package.module:function`."""
        other = str(self.companion)
        return _FUNCTION.fullmatch(other) is not None and not other.endswith(".onnx")

    def of_machine(self, key: str) -> Budget:
        """Return the budget with the limit of this machine. Raise a UsageError if there is none."""
        if not self.by_machine:
            return self
        for pattern, limit in self.by_machine:
            if fnmatchcase(key, pattern):
                return replace(self, limit=limit, by_machine=((pattern, limit),))
        patterns = ", ".join(printable(repr(pattern)) for pattern, _ in self.by_machine)
        raise UsageError(
            f"{self.word} has no limit for this machine, {printable(key)}: its patterns are "
            f'{patterns}. Add one for this machine, or "*" for all others at the end.'
        )


def read_budgets(values: Mapping[str, object], place: str) -> tuple[Budget, ...]:
    """Read the budgets of a marker or a table. A UsageError begins with `place`."""
    for word in values:
        if word not in BUDGET_WORDS:
            raise UsageError(
                f"{place}: there is no budget {printable(word)!r}."
                f"{suggestion(word, BUDGET_WORDS)} There are: {', '.join(FIGURES)}."
            )
        if word in COMPANIONS and COMPANIONS[word] not in values:
            raise UsageError(
                f"{place}: {word} belongs to a budget that is missing: add {COMPANIONS[word]}, or "
                f"leave out {word}."
            )
    budgets = tuple(_read_budget(word, values, place) for word in values if word not in COMPANIONS)
    by_metric: dict[str, str] = {}
    for budget in budgets:
        other = by_metric.setdefault(budget.figure.metric, budget.word)
        if other != budget.word:
            raise UsageError(f"{place}: {other} and {budget.word} are the same budget: give one.")
    return budgets


def _read_budget(word: str, values: Mapping[str, object], place: str) -> Budget:
    figure = FIGURES[word]
    companion = _read_companion(word, figure, values, place) if figure.companions else None
    value = values[word]
    if not (isinstance(value, Mapping) and value):
        return Budget(word, _read_limit(word, value, f"{place}: {word}"), companion)
    if not all(isinstance(pattern, str) and pattern for pattern in value):
        raise UsageError(
            f"{place}: {word} takes limits by patterns of machines, such as "
            f'{{"linux-aarch64*": 1800, "*": 70}}, not {value!r}.'
        )
    limits = tuple(
        (pattern, _read_limit(word, limit, f"{place}: {word} of {printable(repr(pattern))}"))
        for pattern, limit in value.items()
    )
    return Budget(word, limits[-1][1], companion, limits)


def _read_limit(word: str, value: object, place: str) -> float:
    figure = FIGURES[word]
    if figure.takes_share:
        share = read_share(value, place)
        if not figure.is_least:
            return 1.0 + share
        if not 0.0 < share < 1.0:
            raise UsageError(f"{place} takes a share between 0 and 1 such as 0.2, not {value!r}.")
        return 1.0 - share
    number = _read_number(value, is_count=figure.is_count)
    if number is None or not 0 < number * figure.scale <= MOST_FIGURE:
        example = '4.1e9, or "4.1G"' if figure.is_count else "12.5"
        raise UsageError(f"{place} takes a positive number such as {example}, not {value!r}.")
    return number * figure.scale


def _read_companion(
    word: str, figure: Figure, values: Mapping[str, object], place: str
) -> float | str:
    """Return the value of a budget's companion. `frame_rate` becomes the seconds of a frame."""
    given = [each for each in figure.companions if each in values]
    if not given:
        wanted = " or ".join(f"{each}={_EXAMPLES[each]}" for each in figure.companions)
        raise UsageError(f"{place}: {word} is not complete: add {wanted}.")
    if len(given) > 1:
        raise UsageError(f"{place}: {' and '.join(given)} are the same length: give one of them.")
    (name,) = given
    value, place = values[name], f"{place}: {name}"
    if name in _NAMES:
        if not isinstance(value, str) or not value.strip():
            raise UsageError(f"{place} takes a name such as {_NAMES[name]!r}, not {value!r}.")
        return value
    if name == "misses":
        share = read_share(value, place)
        if not 0.0 < share < 1.0:
            raise UsageError(
                f"{place} takes a share between 0 and 1 such as 0.001, not {value!r}. To limit "
                "every inference, give max_ms."
            )
        return share
    number = _read_number(value, is_count=False)
    if number is None or not 0 < number <= MOST_FIGURE:
        raise UsageError(
            f"{place} takes a positive number such as {_EXAMPLES[name]}, not {value!r}."
        )
    return 1.0 / number if name == "frame_rate" else number


_EXAMPLES = {
    "misses": "0.001",
    "audio_seconds": "0.5",
    "frame_rate": "50",
    **{name: repr(example) for name, example in _NAMES.items()},
}


def _read_number(value: object, *, is_count: bool) -> float | None:
    if not isinstance(value, str):
        return as_float(value)
    if is_count:
        # A count of a thousand digits overflows.
        with contextlib.suppress(ValueError, OverflowError):
            return parse_count(value)
    try:
        return float(value)
    except ValueError:
        return None
