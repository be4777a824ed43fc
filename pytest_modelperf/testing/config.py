"""The settings of a test run: from the command line, ini keys, `[tool.modelperf]`, or defaults.

If several sources have a setting, only the first one counts: engine options of two sources are not
merged. They also belong to an engine: those of a file are ignored if another engine is typed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.testing import options
from pytest_modelperf.testing.config_values import (
    is_gateway,
    read_dims,
    read_gateway,
    read_inner_path,
    read_keys,
    read_names,
    read_pairs,
    read_path,
    read_seconds,
    read_sizes,
    read_text,
    read_texts,
    read_tolerance,
)
from pytest_modelperf.testing.options import OPTIONS, PREFIX, Option, UpdateMode
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shown

if TYPE_CHECKING:
    from pytest_modelperf.comparing.limits import Budget, Tolerances

_T = TypeVar("_T")

_MODELS = "models"
_MACHINES = "machines"
# Each says what the side before runs on.
_ENGINES_BEFORE: tuple[Option[object], ...] = (
    options.BASELINE_PYTHON,
    options.BASELINE_REQUIREMENT,
    options.JUDGE_UPGRADES,
)
# Characters that make a path a glob.
_WILD = frozenset("*?[")


# The keys of the table of a model, and what they mean.
MODEL_KEYS: Mapping[str, str] = {
    "batch_size": "a batch size, or a list",
    "cores": "a number of cores, or a list",
    "dims": "sizes of named dimensions: {seq = 64}, {seq = [64, 128]}, or "
    "[{seq = 64, past = 0}, {seq = 1, past = 128}]",
    "inputs": "a whole input as name:dtype:shape or name:dtype:shape:value, or a list",
    "input_file": "arrays to run the model on, by the names of its inputs: a file of numpy",
    "budget": "absolute limits, a table: {latency_ms = 12}",
    "tolerance": "how much slower it may be: 0.03, or {p50 = 0.02, macs = 0.01}",
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
    not the model's own. Each case runs on each of the `machines`.
    """

    batch_sizes: tuple[int | None, ...] = (None,)
    cores: tuple[int, ...] = (1,)
    dims: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    input_file: Path | None = None
    budgets: tuple[Budget, ...] = ()
    tolerances: Tolerances | None = None
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


class Settings(Struct, frozen=True, kw_only=True, eq=False):
    """All settings of a run. `typed` has the keys of the options on the command line.

    `gateway` is the name of one of the `gateways`, or a gateway itself; None: models run here.
    `json`, `markdown`, `html`, `benchmark_json`, `bencher_json` and `trace` are relative to where
    pytest was started. `history` is relative to the root.
    """

    root: Path
    tolerances: Tolerances
    max_seconds: float
    warmup_seconds: float | None
    min_seconds: float | None
    timeout: float
    engine: str
    engine_options: Mapping[str, str]
    gateway: str | None
    static_only: bool
    against: str | None
    baseline_python: str | None
    baseline_requirement: tuple[str, ...]
    judge_engine_upgrades: bool
    baseline_dir: Path
    update: UpdateMode | None
    strict: bool
    prune: bool
    json: str | None
    markdown: str | None
    html: str | None
    benchmark_json: str | None
    bencher_json: str | None
    history: str | None
    trace: str | None
    cluster: str | None
    machine: tuple[str, ...]
    models: ModelTables
    gateways: Mapping[str, str] = field(default_factory=dict)
    typed: frozenset[str] = frozenset()
    table_file: str = "pyproject.toml"
    # A slow model may take longer if no source gives a time.
    has_given_seconds: bool = False

    def __repr__(self) -> str:
        return f"<settings of {self.root}>"

    @property
    def uses_cluster(self) -> bool:
        """Whether a cluster measures the cases; a run that only counts needs none."""
        return self.cluster is not None and not self.static_only

    @property
    def history_folder(self) -> Path | None:
        """The folder of the history; None if this run adds nothing to it."""
        return (
            None if self.history is None or self.against is not None else self.root / self.history
        )

    @property
    def gateway_spec(self) -> str | None:
        """The gateway itself; UsageError for the name of a machine that is not there."""
        return self._spec_of(self.gateway)

    def check_gateways(self, place: str) -> None:
        """UsageError for a machine that is named and not there; `place` names the tables."""
        self._spec_of(self.gateway)
        for table in self.models:
            self._spec_of(table.gateway, f'{place}."{printable(table.pattern)}"]: gateway: ')

    def _spec_of(self, name: str | None, where: str = "") -> str | None:
        if name is None or is_gateway(name):
            return name
        if name in self.gateways:
            return self.gateways[name]
        from pytest_modelperf.text.words import suggestion

        known = ", ".join(map(printable, self.gateways)) or "no machine"
        raise UsageError(
            f"{where}there is no machine {printable(name)!r}.{suggestion(name, self.gateways)} "
            f"[tool.{PREFIX}.{_MACHINES}] of {printable(self.table_file)} has {known}. Add it "
            f'there, as in {printable(name)} = "ssh=pi@host//python=python3", or give a gateway '
            "itself."
        )

    @property
    def judges_upgrades(self) -> bool:
        """Whether a changed engine is judged in this run."""
        is_compared = self.against is None and self.update is not UpdateMode.ALL
        return self.judge_engine_upgrades and is_compared and not self.static_only

    def table_for(self, path: str) -> ModelTable | None:
        """The table of the model at this path, relative to the root and with slashes.

        A table with just that path comes before globs; two globs are a UsageError.
        """
        own = self.models.own(path)
        if own is not None:
            return own
        found = self.models.globs_of(path)
        if len(found) > 1:
            both = " and ".join(f'[tool.modelperf.models."{printable(t.pattern)}"]' for t in found)
            raise UsageError(
                f"{printable(self.table_file)}: {printable(path)} is named by {both}. Make one of "
                "them narrower, or give the model a table with just its path, which then counts "
                "alone."
            )
        return found[0] if found else None

    def with_terms(self, terms: Terms) -> Settings:
        """The settings of a model with these terms; only typed settings win over them.

        Engine options belong to an engine: if another one is chosen, they are ignored.
        """
        engine = terms.engine or self.engine
        if options.ENGINE.key in self.typed:
            engine = self.engine
        chosen: Mapping[str, str] = self.engine_options if engine == self.engine else {}
        if terms.engine_options and terms.engine in {None, engine}:
            chosen = terms.engine_options
        if options.ENGINE_OPTION.key in self.typed:
            chosen = self.engine_options
        settings = replace(self, engine=engine, engine_options=chosen)
        if terms.gateway is not None and options.GATEWAY.key not in self.typed:
            settings = replace(settings, gateway=terms.gateway)
        if terms.tolerances is not None and options.TOLERANCE.key not in self.typed:
            settings = replace(settings, tolerances=terms.tolerances)
        if terms.max_seconds is not None and options.MAX_SECONDS.key not in self.typed:
            settings = replace(settings, max_seconds=terms.max_seconds, has_given_seconds=True)
        if terms.warmup_seconds is not None and options.WARMUP_SECONDS.key not in self.typed:
            settings = replace(settings, warmup_seconds=terms.warmup_seconds)
        if terms.min_seconds is not None and options.MIN_SECONDS.key not in self.typed:
            settings = replace(settings, min_seconds=terms.min_seconds)
        _check_seconds(settings)
        return settings


def read_settings(
    root: Path,
    command_line: Mapping[str, object],
    ini: Mapping[str, object],
    table: Mapping[str, object] | None,
    table_file: str = "pyproject.toml",
) -> Settings:
    """The settings of a run in `root`; UsageError for the first that means nothing.

    The command line has what was typed by the keys of options, None where nothing was. The ini
    keys have texts, lists or bools, likewise by the keys of options, and None or nothing in them
    where they are not set. `table` is what `read_table` returned.
    """
    place = f"{printable(table_file)}, [tool.{PREFIX}"
    given = _Given(command_line, ini, _read_top(table or {}, f"{place}]"), f"{place}]")
    models = given.table.get(_MODELS, {})
    settings = Settings(
        root=root,
        tolerances=given.value(options.TOLERANCE),
        max_seconds=given.value(options.MAX_SECONDS),
        warmup_seconds=given.value(options.WARMUP_SECONDS),
        min_seconds=given.value(options.MIN_SECONDS),
        timeout=given.value(options.TIMEOUT),
        engine=given.value(options.ENGINE),
        engine_options=given.engine_options,
        gateway=given.value(options.GATEWAY),
        static_only=given.value(options.STATIC_ONLY),
        against=given.value(options.AGAINST),
        baseline_python=given.value(options.BASELINE_PYTHON),
        baseline_requirement=given.value(options.BASELINE_REQUIREMENT),
        judge_engine_upgrades=given.value(options.JUDGE_UPGRADES),
        baseline_dir=root / given.value(options.BASELINE_DIR),
        update=given.value(options.UPDATE_BASELINE),
        strict=given.value(options.STRICT),
        prune=given.value(options.PRUNE),
        json=given.value(options.JSON),
        markdown=given.value(options.MARKDOWN),
        html=given.value(options.HTML),
        benchmark_json=given.value(options.BENCHMARK_JSON),
        bencher_json=given.value(options.BENCHER_JSON),
        history=given.value(options.HISTORY),
        trace=given.value(options.TRACE),
        cluster=given.value(options.CLUSTER),
        machine=given.value(options.MACHINE),
        models=_read_models(models, f"{place}.{_MODELS}"),
        gateways=_read_machines(given.table.get(_MACHINES, {}), f"{place}.{_MACHINES}]"),
        typed=frozenset(key for key, value in command_line.items() if _is_typed(value)),
        table_file=table_file,
        has_given_seconds=given.has(options.MAX_SECONDS),
    )
    settings = _with_one_engine_before(settings)
    _check_together(settings)
    _check_seconds(settings)
    settings.check_gateways(f"{place}.{_MODELS}")
    return settings


def _with_one_engine_before(settings: Settings) -> Settings:
    """The settings with one answer to what the baseline runs on; typed ones win over files.

    UsageError if several remain.
    """
    given = [option for option in _ENGINES_BEFORE if getattr(settings, option.key)]
    typed = [option for option in given if option.key in settings.typed]
    chosen = typed or given
    if len(chosen) > 1:
        both = " and ".join(option.flag for option in chosen[:2])
        raise UsageError(
            f"{both} both say what the baseline runs on: leave one of them out, also in "
            f"[tool.{PREFIX}]."
        )
    for option in given:
        if option not in chosen:
            settings = replace(settings, **{option.key: option.read(option.default, option.flag)})
    return settings


def _check_together(settings: Settings) -> None:
    """UsageError for a setting that has no effect beside another one.

    A typed setting wins over one in a file, which is then ignored.
    """
    if settings.static_only:
        idle: Sequence[Option[object]]
        idle = (*_ENGINES_BEFORE, options.GATEWAY, options.TRACE, options.CLUSTER)
        reason = f"with {options.STATIC_ONLY.flag} no model runs"
        _refuse(idle, settings, options.STATIC_ONLY, reason, "Leave one of them out.")
    if settings.against is not None:
        reason = f"the history has ratios to baselines, and {options.AGAINST.flag} uses none"
        _refuse((options.HISTORY,), settings, options.AGAINST, reason, "Leave one of them out.")
        reason = f"the engine of a baseline is judged, and {options.AGAINST.flag} uses no baseline"
        idle = (options.JUDGE_UPGRADES,)
        _refuse(idle, settings, options.AGAINST, reason, "Leave one of them out.")
        if options.RECORDED in settings.baseline_requirement:
            raise UsageError(
                f"{options.BASELINE_REQUIREMENT.flag} {options.RECORDED} needs a baseline, and "
                f"{options.AGAINST.flag} uses none: give the version, as in onnxruntime==1.22.0."
            )
    if settings.update is UpdateMode.ALL:
        idle = (options.AGAINST, *_ENGINES_BEFORE)
        reason = f"{options.UPDATE_BASELINE.flag} records every case and compares none"
        remedy = (
            f"Leave one of them out, or record only what is new or improved: "
            f"{options.UPDATE_BASELINE.flag}=new or =improved."
        )
        _refuse(idle, settings, options.UPDATE_BASELINE, reason, remedy)
    for option in _ENGINES_BEFORE:
        if settings.uses_cluster and getattr(settings, option.key):
            raise UsageError(
                f"{option.flag} needs a Python of this machine, and with {options.CLUSTER.flag} "
                "others measure. Leave one of them out."
            )


def _check_seconds(settings: Settings) -> None:
    """UsageError for a least time above the longest one."""
    longest = settings.max_seconds
    for option in (options.WARMUP_SECONDS, options.MIN_SECONDS):
        seconds = getattr(settings, option.key)
        if seconds is not None and seconds > longest:
            raise UsageError(
                f"{option.key} is {seconds:g}, which is longer than max_seconds, {longest:g}: make "
                f"max_seconds {2 * seconds:g}, or {option.key} shorter."
            )


def _refuse(
    idle: Sequence[Option[object]],
    settings: Settings,
    other: Option[object],
    reason: str,
    remedy: str,
) -> None:
    """UsageError for the first of these settings that was given, unless only `other` was typed."""
    for option in idle:
        is_left_out = other.key in settings.typed and option.key not in settings.typed
        if getattr(settings, option.key) and not is_left_out:
            raise UsageError(f"{option.flag} would do nothing: {reason}. {remedy}")


def check_ini_keys(names: Iterable[str]) -> None:
    """UsageError for an ini key that looks like one of ours and is none."""
    by_key = {option.key: option for option in OPTIONS}
    known = [option.key for option in OPTIONS if option.is_in_files]
    for name in names:
        if not name.startswith((f"{PREFIX}_", f"{PREFIX}-")):
            continue
        written = name[len(PREFIX) + 1 :]
        key = written.replace("-", "_")
        if key in by_key and not by_key[key].is_in_files:
            raise by_key[key].refusal(f"the ini key {printable(name)}")
        if name == f"{PREFIX}_{key}" and key in known:
            continue
        from pytest_modelperf.text.words import nearest

        # Without the prefix, which would make each like all others.
        near = nearest(key, known)
        hint = "" if near is None else f" Did you mean {PREFIX}_{near}?"
        raise UsageError(
            f"there is no ini key {printable(name)!r}.{hint} "
            f"There are: {', '.join(by_key[key].ini for key in known)}."
        )


class _Given(NamedTuple):
    """The values from each source; `place` names the table in messages."""

    command_line: Mapping[str, object]
    ini: Mapping[str, object]
    table: Mapping[str, object]
    place: str

    def value(self, option: Option[_T]) -> _T:
        """The value of the first source that has one; values of other sources are checked too."""
        values = self._values(option)
        return values[0] if values else option.read(option.default, "the default")

    def has(self, option: Option[_T]) -> bool:
        """Whether any source gives a value."""
        return bool(self._values(option))

    def _values(self, option: Option[_T]) -> list[_T]:
        values: list[_T] = []
        typed, written = self.command_line.get(option.key), self.ini.get(option.key)
        if _is_typed(typed):
            values.append(option.read(option.parse(typed, option.flag), option.flag))
        if written is not None and written not in ("", []):
            where = f"the ini key {option.ini}"
            if not option.is_in_files:
                raise option.refusal(where)
            values.append(option.read(option.parse(written, where), where))
        if option.table_key in self.table:
            where = f"{self.place}: {option.table_key}"
            values.append(option.read(self.table[option.table_key], where))
        return values

    @property
    def engine_options(self) -> Mapping[str, str]:
        """The options of the engine; those in files are ignored if another engine is typed."""
        is_typed = _is_typed(self.command_line.get(options.ENGINE_OPTION.key))
        in_files = self._replace(command_line={})
        is_theirs = self.value(options.ENGINE) == in_files.value(options.ENGINE)
        return self.value(options.ENGINE_OPTION) if is_typed or is_theirs else {}


def _is_typed(value: object) -> bool:
    # A repeatable option that was not typed is an empty list.
    return value is not None and value != []


def _read_top(table: Mapping[str, object], place: str) -> Mapping[str, object]:
    for key in table:
        for option in OPTIONS:
            if option.table_key == key.replace("-", "_") and not option.is_in_files:
                raise option.refusal(f"{place}: {printable(key)}")
    known = [option.table_key for option in OPTIONS if option.is_in_files]
    return read_keys(table, (*known, _MODELS, _MACHINES), place)


def _read_machines(machines: object, place: str) -> Mapping[str, str]:
    """The gateways of machines, by their names."""
    if not isinstance(machines, Mapping):
        raise UsageError(
            f"{place} takes a gateway for each machine, such as "
            f'board = "ssh=pi@board//python=python3", not {shown(machines)}.'
        )
    found: dict[str, str] = {}
    for name, value in machines.items():
        where = f"{place}: {printable(name)}"
        if is_gateway(name) or not name.strip():
            raise UsageError(f"{where} is no name of a machine: give one such as board.")
        found[name] = read_gateway(value, where)
        if not is_gateway(found[name]):
            raise UsageError(
                f"{where} takes a gateway such as ssh=pi@board//python=python3, not {shown(value)}."
            )
    return found


def _read_models(models: object, place: str) -> ModelTables:
    """The tables of all models; `place` names them, without the closing bracket."""
    if not isinstance(models, Mapping):
        raise UsageError(
            f"{place}] takes a table for each model, such as "
            f'[tool.{PREFIX}.{_MODELS}."models/a.onnx"], not {shown(models)}.'
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
        input_file=value("input_file", read_path, None),
        budgets=value("budget", _read_budgets, ()),
        tolerances=value("tolerance", read_tolerance, None),
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
    from pytest_modelperf.comparing.limits import read_budgets

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
