"""The tables of models in `[tool.modelperf.models]`: their keys, and which paths they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TypeVar

from msgspec import Struct, field

from pytest_modelperf.comparing.limits import Budget, Tolerances, read_budgets
from pytest_modelperf.comparing.records import Measure
from pytest_modelperf.errors import UsageError
from pytest_modelperf.graph.phases import Phase
from pytest_modelperf.testing.config_values import (
    read_dims,
    read_gateway,
    read_inner_path,
    read_keys,
    read_lengths,
    read_measure,
    read_names,
    read_pairs,
    read_path,
    read_phases,
    read_seconds,
    read_sizes,
    read_state,
    read_text,
    read_texts,
    read_tolerance,
)
from pytest_modelperf.testing.options import PREFIX
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shown

_T = TypeVar("_T")

# The key of the table that has a table for each model.
MODELS = "models"
# Characters that make a path a glob.
_WILD = frozenset("*?[")
# The keys of the table of a model, and what they mean.
MODEL_KEYS: Mapping[str, str] = {
    "batch_size": "a batch size, or a list",
    "cores": "a number of cores, or a list",
    "dims": "sizes of named dimensions: {seq = 64}, {seq = [64, 128]}, or "
    "[{seq = 64, past = 0}, {seq = 1, past = 128}]",
    "inputs": "a whole input as name:dtype:shape or name:dtype:shape:value, or a list",
    "prompt": "the length of a prompt in tokens, or a list: a model with state generates",
    "generate": "how many tokens are generated after the prompt, or a list",
    "phase": "which phases of a generation are cases: prefill, step, or both",
    "state": 'inputs and the outputs that they take over: {past = "present"}',
    "input_file": "arrays to run the model on, by the names of its inputs: a file of numpy",
    "budget": "absolute limits, a table: {latency_ms = 12}",
    "tolerance": "how much slower it may be: 0.03, or {p50 = 0.02, macs = 0.01}",
    "measure": "what runs beside its baseline: changed (what the plan says has changed) or always",
    "engine": "what runs it",
    "engine_options": "options of the engine, a table",
    "gateway": "where it runs: a name of [tool.modelperf.machines], or as in ssh=host",
    "max_seconds": "the longest that the rounds of a case may take",
    "warmup_seconds": "the least that each session is warmed up",
    "min_seconds": "the least that the rounds of a case may take that is measured alone",
    "baseline": "the path that names its baseline, in place of its own",
    "machines": "keys or tags of machines, each of which runs every case",
}


class Terms(Struct, frozen=True, kw_only=True):
    """The sizes that make the cases of a model, how it runs, and its limits.

    None: use the setting of the run. `baseline` is the path that names the baseline, if that is
    not the model's own. Each case runs on each of the `machines`. A model with state generates
    after prompts of each length in `prompts` as many tokens as each number in `generates`; these
    `phases` of it are cases. `state` names inputs, and the outputs that they take over.
    """

    batch_sizes: tuple[int | None, ...] = (None,)
    cores: tuple[int, ...] = (1,)
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    prompts: tuple[int, ...] = ()
    generates: tuple[int, ...] = ()
    phases: tuple[Phase, ...] = tuple(Phase)
    state: Mapping[str, str] = field(default_factory=dict)
    input_file: Path | None = None
    budgets: tuple[Budget, ...] = ()
    tolerances: Tolerances | None = None
    measure: Measure | None = None
    engine: str | None = None
    engine_options: Mapping[str, str] = field(default_factory=dict)
    gateway: str | None = None
    max_seconds: float | None = None
    warmup_seconds: float | None = None
    min_seconds: float | None = None
    baseline: str | None = None
    machines: tuple[str, ...] = ()


class ModelTable(Terms, frozen=True, kw_only=True):
    """The table `[tool.modelperf.models."models/*.onnx"]`."""

    pattern: str

    def __repr__(self) -> str:
        return f"<table of {self.pattern}>"

    def matches(self, path: str) -> bool:
        """Whether it names a path below the root, by itself or as a glob."""
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            return False
        return str(pure) == self.pattern or _matches(pure.parts, self.pattern.split("/"))


class ModelTables:
    """The tables of models, in their order. Most of many name one model each: that is looked up."""

    def __init__(self, tables: Iterable[ModelTable] = ()) -> None:
        self._tables = {table.pattern: table for table in tables}
        self._globs = [t for t in self._tables.values() if not _WILD.isdisjoint(t.pattern)]

    def __iter__(self) -> Iterator[ModelTable]:
        return iter(self._tables.values())

    def own(self, path: str) -> ModelTable | None:
        """The table with just that path, relative to the root and with slashes."""
        return self._tables.get(str(PurePosixPath(path)))

    def globs_of(self, path: str) -> list[ModelTable]:
        """The tables with a glob that matches the path."""
        return [table for table in self._globs if table.matches(path)]


def read_models(models: object, place: str) -> ModelTables:
    """The tables of all models; `place` names them, without the closing bracket."""
    if not isinstance(models, Mapping):
        raise UsageError(
            f"{place}] takes a table for each model, such as "
            f'[tool.{PREFIX}.{MODELS}."models/a.onnx"], not {shown(models)}.'
        )
    tables: dict[str, ModelTable] = {}
    for written, table in models.items():
        where = f'{place}."{printable(written)}"]'
        pattern = read_inner_path(written, where)
        if pattern in tables:
            raise UsageError(
                f"{where}: there is another table of {printable(pattern)}: make them one."
            )
        tables[pattern] = _read_model(pattern, table, where)
    return ModelTables(tables.values())


def _read_model(pattern: str, table: object, where: str) -> ModelTable:
    given = read_keys(table, MODEL_KEYS, where)

    def value(key: str, read: Callable[[object, str], _T], default: _T) -> _T:
        return read(given[key], f"{where}: {key}") if key in given else default

    nothing: Mapping[str, str] = {}
    return ModelTable(
        pattern=pattern,
        batch_sizes=value("batch_size", read_sizes, (None,)),
        cores=value("cores", read_sizes, (1,)),
        dims=value("dims", read_dims, {}),
        inputs=value("inputs", read_texts, ()),
        prompts=value("prompt", read_lengths, ()),
        generates=value("generate", read_lengths, ()),
        phases=value("phase", read_phases, tuple(Phase)),
        state=value("state", read_state, nothing),
        input_file=value("input_file", read_path, None),
        budgets=value("budget", _read_budgets, ()),
        tolerances=value("tolerance", read_tolerance, None),
        measure=value("measure", read_measure, None),
        engine=value("engine", read_text, None),
        engine_options=value("engine_options", read_pairs, nothing),
        gateway=value("gateway", read_gateway, None),
        max_seconds=value("max_seconds", read_seconds, None),
        warmup_seconds=value("warmup_seconds", read_seconds, None),
        min_seconds=value("min_seconds", read_seconds, None),
        baseline=value("baseline", read_inner_path, None),
        machines=value("machines", read_names, ()),
    )


def _read_budgets(value: object, where: str) -> tuple[Budget, ...]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} takes a table such as {{latency_ms = 12}}, not {shown(value)}.")
    return read_budgets(value, where)


def _matches(path: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path fits a glob, part by part; `**` is any number of parts."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        # Several in a row match the same as one.
        rest = pattern[1:]
        if rest and rest[0] == "**":
            return _matches(path, rest)
        return any(_matches(path[start:], rest) for start in range(len(path) + 1))
    if not path or not fnmatchcase(path[0], pattern[0]):
        return False
    return _matches(path[1:], pattern[1:])
