"""Reading the settings of a run: the command line, ini keys, `[tool.modelperf]` and defaults.

The JSON Schema of the table is for editors and validate-pyproject.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import field
from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.documents import PYPROJECT
from pytest_modelperf.spec import run_definitions as run
from pytest_modelperf.spec.case_definitions import CASE_SETTINGS
from pytest_modelperf.spec.case_spec import MeasuringSettings
from pytest_modelperf.spec.declaring import MODEL_KEYS, MODELS, ModelTables, read_models
from pytest_modelperf.spec.kinds import KINDS, JsonSchema, read, read_default, read_typed
from pytest_modelperf.spec.readers import is_gateway, read_gateway, read_keys
from pytest_modelperf.spec.run_definitions import PREFIX, RUN_SETTINGS, Place, Setting, UpdateMode
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.version import SITE
from pytest_modelperf.text.words import nearest, shown, suggestion

if TYPE_CHECKING:
    from pytest_modelperf.comparing.limits import Tolerances
    from pytest_modelperf.comparing.records import Measure
    from pytest_modelperf.spec.case_spec import CaseSpec

GATEWAYS = "machines"
# The settings that a model may override. `engine_for` handles the engine and its options.
_OF_MODELS = tuple(
    each
    for each in RUN_SETTINGS
    if each.stands_in(Place.MODEL) and each not in {run.ENGINE, run.ENGINE_OPTION}
)


class RunSettings(MeasuringSettings, frozen=True, kw_only=True, eq=False):
    """All settings of a run.

    `typed` has the keys of the options on the command line. `gateway` is the name of one of the
    `gateways`, or a gateway itself; None means that models run here. `json`, `markdown`, `html`,
    `benchmark_json`, `bencher_json` and `trace` are relative to the folder where pytest was
    started. `history` is relative to the root.
    """

    tolerances: Tolerances
    measure: Measure
    output_sketch: bool
    static_only: bool
    against: str | None
    baseline_python: str | None
    baseline_requirements: tuple[str, ...]
    judge_engine_upgrades: bool
    baseline_dir: Path
    update: UpdateMode | None
    uncommitted: bool
    strict: bool
    prune: bool
    no_cache: bool
    json: str | None
    markdown: str | None
    html: str | None
    benchmark_json: str | None
    bencher_json: str | None
    history: str | None
    trace: str | None
    cluster: str | None
    machine: tuple[str, ...]
    root: Path
    models: ModelTables
    gateways: Mapping[str, str] = field(default_factory=dict)
    typed: frozenset[str] = frozenset()
    # Whether the user gave `max_seconds`. If not, a slow model may exceed it.
    has_given_seconds: bool = False

    def __repr__(self) -> str:
        return f"<settings of {self.root}>"

    @property
    def uses_cluster(self) -> bool:
        """Whether a cluster measures the cases. A run that only counts needs none."""
        return self.cluster is not None and not self.static_only

    @property
    def history_folder(self) -> Path | None:
        """The folder of the history, or None if this run adds nothing to it."""
        return (
            None if self.history is None or self.against is not None else self.root / self.history
        )

    @property
    def gateway_spec(self) -> str | None:
        """The gateway itself. Raises UsageError for the name of an unknown machine."""
        return self._spec_of(self.gateway)

    def check_gateways(self, place: str) -> None:
        """Raise UsageError for an unknown machine. `place` names the tables of models."""
        self._spec_of(self.gateway)
        for pattern, spec in self.models.items():
            self._spec_of(spec.gateway, f'{place}."{printable(pattern)}"]: gateway: ')

    def _spec_of(self, name: str | None, place: str = "") -> str | None:
        if name is None or is_gateway(name):
            return name
        if name in self.gateways:
            return self.gateways[name]
        known = ", ".join(map(printable, self.gateways)) or "no machine"
        raise UsageError(
            f"{place}there is no machine {printable(name)!r}.{suggestion(name, self.gateways)} "
            f"[tool.{PREFIX}.{GATEWAYS}] of {PYPROJECT} has {known}. Add it "
            f'there, as in {printable(name)} = "ssh=pi@host//python=python3", or give a gateway '
            "itself."
        )

    @property
    def runs_beside_baselines(self) -> bool:
        """Whether models run and are compared with recorded baselines."""
        is_compared = self.against is None and self.update is not UpdateMode.ALL
        return is_compared and not self.static_only

    @property
    def judges_upgrades(self) -> bool:
        return self.judge_engine_upgrades and self.runs_beside_baselines

    def spec_for(self, path: str) -> CaseSpec | None:
        """Return the spec in the table of the model at this path.

        The path is relative to the root, with slashes. A table with exactly this path overrides
        globs. Two matching globs are a UsageError.
        """
        own = self.models.own(path)
        if own is not None:
            return own
        found = self.models.globs_of(path)
        if len(found) > 1:
            both = " and ".join(f'[tool.modelperf.models."{printable(each)}"]' for each in found)
            raise UsageError(
                f"{PYPROJECT}: {printable(path)} is named by {both}. Make one of "
                "them narrower, or give the model a table with just its path, which then counts "
                "alone."
            )
        return next(iter(found.values()), None)

    def for_model(self, spec: CaseSpec) -> RunSettings:
        """Apply the spec of a model to the settings. Only typed settings override it."""
        engine, options = self.engine_for(spec)
        given: dict[str, Any] = {
            each.field: value
            for each in _OF_MODELS
            if each.key not in self.typed and (value := getattr(spec, each.field)) is not None
        }
        has_seconds = self.has_given_seconds or run.MAX_SECONDS.field in given
        settings = replace(
            self, engine=engine, engine_options=options, has_given_seconds=has_seconds, **given
        )
        settings.check_seconds(lambda setting: setting.key)
        return settings

    def engine_for(self, spec: CaseSpec) -> tuple[str, Mapping[str, str]]:
        """Return the engine of a model with this spec, and its options.

        Options belong to an engine. If another engine is chosen, they are ignored.
        """
        engine = spec.engine or self.engine
        if run.ENGINE.key in self.typed:
            engine = self.engine
        options: Mapping[str, str] = self.engine_options if engine == self.engine else {}
        if spec.engine_options and spec.engine in {None, engine}:
            options = spec.engine_options
        if run.ENGINE_OPTION.key in self.typed:
            options = self.engine_options
        return engine, options


# -- settings of a run that exclude each other


# Each of them chooses the engine for the side of the baseline.
_ENGINES_BEFORE = (run.BASELINE_PYTHON, run.BASELINE_REQUIREMENT, run.JUDGE_UPGRADES)


def with_one_engine_before(settings: RunSettings) -> RunSettings:
    """Keep one setting for the engine of the baseline. Typed settings override those in files.

    Raise UsageError if several remain.
    """
    given = [setting for setting in _ENGINES_BEFORE if getattr(settings, setting.field)]
    typed = [setting for setting in given if setting.key in settings.typed]
    chosen = typed or given
    if len(chosen) > 1:
        both = " and ".join(setting.flag for setting in chosen[:2])
        raise UsageError(
            f"{both} both say what the baseline runs on: leave one of them out, also in "
            f"[tool.{PREFIX}]."
        )
    for setting in given:
        if setting not in chosen:
            settings = replace(settings, **{setting.field: read_default(setting)})
    return settings


def check_together(settings: RunSettings) -> None:
    """Raise UsageError for a setting that has no effect together with another one.

    A typed setting overrides one in a file, which is then ignored.
    """
    if settings.static_only:
        idle = (*_ENGINES_BEFORE, run.GATEWAY, run.TRACE, run.CLUSTER)
        reason = f"with {run.STATIC_ONLY.flag} no model runs"
        _refuse(idle, settings, run.STATIC_ONLY, reason)
    if settings.against is not None:
        reason = f"the history has ratios to baselines, and {run.AGAINST.flag} uses none"
        _refuse((run.HISTORY,), settings, run.AGAINST, reason)
        reason = f"the engine of a baseline is judged, and {run.AGAINST.flag} uses no baseline"
        _refuse((run.JUDGE_UPGRADES,), settings, run.AGAINST, reason)
        if run.RECORDED in settings.baseline_requirements:
            raise UsageError(
                f"{run.BASELINE_REQUIREMENT.flag} {run.RECORDED} needs a baseline, and "
                f"{run.AGAINST.flag} uses none: give the version, as in onnxruntime==1.22.0."
            )
    if settings.update is UpdateMode.ALL:
        reason = f"{run.UPDATE_BASELINE.flag} records every case and compares none"
        remedy = (
            f"Leave one of them out, or record only what is new or improved: "
            f"{run.UPDATE_BASELINE.flag}=new or =improved."
        )
        _refuse((run.AGAINST, *_ENGINES_BEFORE), settings, run.UPDATE_BASELINE, reason, remedy)
    for setting in _ENGINES_BEFORE:
        if settings.uses_cluster and getattr(settings, setting.field):
            raise UsageError(
                f"{setting.flag} needs a Python of this machine, and with {run.CLUSTER.flag} "
                "other machines measure. Leave one of them out."
            )


def _refuse(
    idle: Sequence[Setting],
    settings: RunSettings,
    other: Setting,
    reason: str,
    remedy: str = "Leave one of them out.",
) -> None:
    """Raise UsageError for the first setting that was given, unless only `other` was typed."""
    for setting in idle:
        is_left_out = other.key in settings.typed and setting.key not in settings.typed
        if getattr(settings, setting.field) and not is_left_out:
            raise UsageError(f"{setting.flag} would have no effect: {reason}. {remedy}")


# -- reading the settings of a run


def read_settings(
    root: Path,
    command_line: Mapping[str, object],
    ini: Mapping[str, object],
    table: Mapping[str, object] | None,
) -> RunSettings:
    """Read the settings of a run in `root`, or raise UsageError for the first invalid one.

    `command_line` and `ini` map the keys of settings to their values. An option that was not typed
    is None or an empty list. An ini key is a text, a list or a bool, and None or empty if it is not
    set. `table` is what `read_table` returned.
    """
    place = f"{PYPROJECT}, [tool.{PREFIX}"
    given = _Given(command_line, ini, _read_top(table or {}, f"{place}]"), f"{place}]")
    values = {setting.field: given.value(setting) for setting in RUN_SETTINGS}
    values[run.ENGINE_OPTION.field] = given.engine_options
    values[run.BASELINE_DIR.field] = root / values[run.BASELINE_DIR.field]
    settings = RunSettings(
        **values,
        root=root,
        models=read_models(given.table.get(MODELS, {}), f"{place}.{MODELS}"),
        gateways=_read_gateways(given.table.get(GATEWAYS, {}), f"{place}.{GATEWAYS}]"),
        typed=frozenset(key for key, value in command_line.items() if _is_typed(value)),
        has_given_seconds=given.has(run.MAX_SECONDS),
    )
    settings = with_one_engine_before(settings)
    check_together(settings)
    if settings.update is run.UpdateMode.ALL:
        # Only `against` in a file remains here, and a typed option to record all overrides it.
        settings = replace(settings, against=None)
    settings.check_seconds(lambda setting: setting.key)
    settings.check_gateways(f"{place}.{MODELS}")
    return settings


def check_ini_keys(names: Iterable[str]) -> None:
    """Raise UsageError for an unknown ini key that begins with `modelperf`."""
    by_key = {setting.key: setting for setting in RUN_SETTINGS}
    known = [setting.key for setting in RUN_SETTINGS if setting.is_in_files]
    for name in names:
        if not name.startswith((f"{PREFIX}_", f"{PREFIX}-")):
            continue
        written = name[len(PREFIX) + 1 :]
        key = written.replace("-", "_")
        if key in by_key and not by_key[key].is_in_files:
            raise by_key[key].refusal(f"the ini key {printable(name)}")
        if name == f"{PREFIX}_{key}" and key in known:
            continue
        # Compared without the prefix, which would make all keys similar.
        near = nearest(key, known)
        hint = "" if near is None else f" Did you mean {PREFIX}_{near}?"
        raise UsageError(
            f"there is no ini key {printable(name)!r}.{hint} "
            f"There are: {', '.join(by_key[key].ini for key in known)}."
        )


class _Given(NamedTuple):
    """The values from each source. `place` names the table in messages."""

    command_line: Mapping[str, object]
    ini: Mapping[str, object]
    table: Mapping[str, object]
    place: str

    def value(self, setting: Setting) -> Any:  # noqa: ANN401  # what its kind reads
        values = self._values(setting)
        return values[0] if values else read_default(setting)

    def has(self, setting: Setting) -> bool:
        return bool(self._values(setting))

    def _values(self, setting: Setting) -> Sequence[Any]:
        values = []
        typed, written = self.command_line.get(setting.key), self.ini.get(setting.key)
        if _is_typed(typed):
            values.append(read_typed(setting, typed, setting.flag))
        if written is not None and written not in ("", []):
            place = f"the ini key {setting.ini}"
            if not setting.is_in_files:
                raise setting.refusal(place)
            values.append(read_typed(setting, written, place))
        if setting.table_key in self.table:
            place = f"{self.place}: {setting.table_key}"
            values.append(read(setting, self.table[setting.table_key], place))
        return values

    @property
    def engine_options(self) -> Mapping[str, str]:
        is_typed = _is_typed(self.command_line.get(run.ENGINE_OPTION.key))
        in_files = self._replace(command_line={})
        is_theirs = self.value(run.ENGINE) == in_files.value(run.ENGINE)
        options: Mapping[str, str] = self.value(run.ENGINE_OPTION)
        return options if is_typed or is_theirs else {}


def _is_typed(value: object) -> bool:
    # A repeatable option that was not typed is an empty list.
    return value is not None and value != []


def _read_top(table: Mapping[str, object], place: str) -> Mapping[str, object]:
    for key in table:
        for setting in RUN_SETTINGS:
            if setting.table_key == key.replace("-", "_") and not setting.is_in_files:
                raise setting.refusal(f"{place}: {printable(key)}")
    known = [setting.table_key for setting in RUN_SETTINGS if setting.is_in_files]
    return read_keys(table, (*known, MODELS, GATEWAYS), place, MODEL_KEYS)


def _read_gateways(machines: object, table: str) -> Mapping[str, str]:
    if not isinstance(machines, Mapping):
        raise UsageError(
            f"{table} takes a gateway for each machine, such as "
            f'board = "ssh=pi@board//python=python3", not {shown(machines)}.'
        )
    found: dict[str, str] = {}
    for name, value in machines.items():
        place = f"{table}: {printable(name)}"
        if is_gateway(name) or not name.strip():
            raise UsageError(f"{place} cannot name a machine: give a name such as board.")
        found[name] = read_gateway(value, place)
        if not is_gateway(found[name]):
            raise UsageError(
                f"{place} takes a gateway such as ssh=pi@board//python=python3, not {shown(value)}."
            )
    return found


# The dialect that validate-pyproject reads.
_DIALECT = "http://json-schema.org/draft-07/schema"


def tool_schema(tool_name: str = PREFIX) -> Mapping[str, object]:
    """Return the schema of the tool's table. validate-pyproject calls this."""
    return {
        "$schema": _DIALECT,
        "$id": f"{SITE}schemas/tool-modelperf.json",
        "title": f"[tool.{tool_name}]",
        "description": "Settings of pytest --modelperf.",
        **table_schema(),
    }


def table_schema() -> Mapping[str, object]:
    in_model = (each for each in CASE_SETTINGS if each.stands_in(Place.MODEL))
    model = {
        "description": "The cases of the models at a path, or of all that match a glob.",
        **_table(_properties(in_model)),
    }
    properties = {
        **_properties(each for each in RUN_SETTINGS if each.is_in_files),
        MODELS: {
            "description": "A table for each model, by its path or a glob.",
            "type": "object",
            "additionalProperties": model,
        },
        GATEWAYS: {
            "description": "The gateways of machines, by their names.",
            "type": "object",
            "additionalProperties": {"type": "string", "minLength": 1},
        },
    }
    return _table(properties)


def _table(properties: Mapping[str, JsonSchema]) -> Mapping[str, object]:
    with_hyphens = {
        f"^{key.replace('_', '-')}$": value for key, value in properties.items() if "_" in key
    }
    patterns = {"patternProperties": with_hyphens} if with_hyphens else {}
    return {"type": "object", "properties": properties, **patterns, "additionalProperties": False}


def _properties(settings: Iterable[Setting]) -> Mapping[str, JsonSchema]:
    return {
        each.table_key: {
            "description": _description(each),
            **({} if each.default is None else {"default": each.default}),
            **KINDS[each.kind].schema,
        }
        for each in settings
    }


def _description(setting: Setting) -> str:
    """Describe a setting in a sentence, with its unit and its usual value."""
    text = f"{setting.help[0].upper()}{setting.help[1:]}".replace("`", "")
    unit = f", in {setting.unit}" if setting.unit else ""
    usual = f" Default: {setting.usual}." if setting.usual else ""
    return f"{text}{unit}.{usual}"
