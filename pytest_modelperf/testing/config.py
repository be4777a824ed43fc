"""The settings of a test run: from the command line, ini keys, `[tool.modelperf]`, or defaults.

If several sources have a setting, only the first one counts: engine options of two sources are not
merged. They also belong to an engine: those of a file are ignored if another engine is typed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.testing import options
from pytest_modelperf.testing.config_values import is_gateway, read_gateway, read_keys
from pytest_modelperf.testing.model_tables import (
    MODEL_KEYS,
    MODELS,
    ModelTable,
    ModelTables,
    Terms,
    read_models,
)
from pytest_modelperf.testing.options import OPTIONS, PREFIX, Option, UpdateMode
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import shown

if TYPE_CHECKING:
    from pytest_modelperf.comparing.limits import Tolerances
    from pytest_modelperf.comparing.records import Measure

_T = TypeVar("_T")

_MACHINES = "machines"
# Each says what the side before runs on.
_ENGINES_BEFORE: tuple[Option[object], ...] = (
    options.BASELINE_PYTHON,
    options.BASELINE_REQUIREMENT,
    options.JUDGE_UPGRADES,
)


class Settings(Struct, frozen=True, kw_only=True, eq=False):
    """All settings of a run. `typed` has the keys of the options on the command line.

    `gateway` is the name of one of the `gateways`, or a gateway itself; None: models run here.
    `json`, `markdown`, `html`, `benchmark_json`, `bencher_json` and `trace` are relative to where
    pytest was started. `history` is relative to the root.
    """

    root: Path
    tolerances: Tolerances
    measure: Measure
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
        if terms.measure is not None and options.MEASURE.key not in self.typed:
            settings = replace(settings, measure=terms.measure)
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
    models = given.table.get(MODELS, {})
    settings = Settings(
        root=root,
        tolerances=given.value(options.TOLERANCE),
        measure=given.value(options.MEASURE),
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
        models=read_models(models, f"{place}.{MODELS}"),
        gateways=_read_machines(given.table.get(_MACHINES, {}), f"{place}.{_MACHINES}]"),
        typed=frozenset(key for key, value in command_line.items() if _is_typed(value)),
        table_file=table_file,
        has_given_seconds=given.has(options.MAX_SECONDS),
    )
    settings = _with_one_engine_before(settings)
    _check_together(settings)
    _check_seconds(settings)
    settings.check_gateways(f"{place}.{MODELS}")
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
    return read_keys(table, (*known, MODELS, _MACHINES), place, MODEL_KEYS)


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
