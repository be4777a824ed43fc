"""The settings of a run read: from the command line, ini keys, `[tool.modelperf]`, or defaults.

If several sources have a setting, only the first one counts: engine options of two sources are not
merged. They also belong to an engine: those of a file are ignored if another engine is typed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.settings_table import PYPROJECT
from pytest_modelperf.spec import run_definitions as run
from pytest_modelperf.spec.exclusions import check_together, with_one_engine_before
from pytest_modelperf.spec.kinds import read, read_default, read_typed
from pytest_modelperf.spec.model_tables import MODEL_KEYS, MODELS, read_models
from pytest_modelperf.spec.readers import is_gateway, read_gateway, read_keys
from pytest_modelperf.spec.run_definitions import RUN_SETTINGS
from pytest_modelperf.spec.run_settings import GATEWAYS, RunSettings
from pytest_modelperf.spec.setting import PREFIX, Setting
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import nearest, shown


def read_settings(
    root: Path,
    command_line: Mapping[str, object],
    ini: Mapping[str, object],
    table: Mapping[str, object] | None,
) -> RunSettings:
    """The settings of a run in `root`; UsageError for the first that means nothing.

    The command line has what was typed by the keys of settings, None where nothing was. The ini
    keys have texts, lists or bools, likewise by the keys of settings, and None or nothing in them
    where they are not set. `table` is what `read_table` returned.
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
        # The other revision of a file is ignored where it was typed that all cases are recorded.
        settings = replace(settings, against=None)
    settings.check_seconds(lambda setting: setting.key)
    settings.check_gateways(f"{place}.{MODELS}")
    return settings


def check_ini_keys(names: Iterable[str]) -> None:
    """UsageError for an ini key that looks like one of modelperf and is none."""
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

    def value(self, setting: Setting) -> Any:  # noqa: ANN401  # what its kind reads
        """The value of the first source that has one; values of other sources are checked too."""
        values = self._values(setting)
        return values[0] if values else read_default(setting)

    def has(self, setting: Setting) -> bool:
        """Whether any source gives a value."""
        return bool(self._values(setting))

    def _values(self, setting: Setting) -> Sequence[Any]:
        values = []
        typed, written = self.command_line.get(setting.key), self.ini.get(setting.key)
        if _is_typed(typed):
            values.append(read_typed(setting, typed, setting.flag))
        if written is not None and written not in ("", []):
            where = f"the ini key {setting.ini}"
            if not setting.is_in_files:
                raise setting.refusal(where)
            values.append(read_typed(setting, written, where))
        if setting.table_key in self.table:
            where = f"{self.place}: {setting.table_key}"
            values.append(read(setting, self.table[setting.table_key], where))
        return values

    @property
    def engine_options(self) -> Mapping[str, str]:
        """The options of the engine; those in files are ignored if another engine is typed."""
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


def _read_gateways(machines: object, place: str) -> Mapping[str, str]:
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
