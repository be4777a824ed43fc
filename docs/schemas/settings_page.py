"""The tables of settings in docs/configuration.md, from the definitions of the settings.

`make schemas` writes them between the marks of that page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from marked_blocks import code, table, with_block

from pytest_modelperf.spec.case_definitions import CASE_SETTINGS
from pytest_modelperf.spec.run_definitions import RUN_SETTINGS, Place, Setting

PAGE = Path(__file__).parent.parent / "configuration.md"
_AS_IN_RUN = "as in the run"
_OF_RUN = "as the [option](#options) of this name"


def with_tables(text: str) -> str:
    """The page with the tables of today."""
    for name, block in tables().items():
        text = with_block(text, f"settings: {name}", block)
    return text


def tables(
    of_run: Sequence[Setting] = RUN_SETTINGS, of_case: Sequence[Setting] = CASE_SETTINGS
) -> Mapping[str, str]:
    """The table of the settings of a run, and that of a model."""
    in_model = [each for each in of_case if each.stands_in(Place.MODEL)]
    return {
        "run": table(
            ("option", "table key", "default", "meaning"), map(_row_of_run, of_run), space=""
        ),
        "model": table(
            ("key", "default", "example", "meaning"), _rows_of_model(in_model), space=""
        ),
    }


def _row_of_run(setting: Setting) -> Sequence[str]:
    typed = setting.flag
    if setting.implied is not None:
        typed = f"{typed}[=MODE]"
    elif setting.metavar is not None:
        typed = f"{typed} {setting.metavar}"
    default = "false" if setting.metavar is None else _default(setting)
    if not setting.is_in_files:
        return (_linked(typed, setting), "", "", _meaning(setting))
    return (_linked(typed, setting), code(setting.table_key), default, _meaning(setting))


def _rows_of_model(settings: Sequence[Setting]) -> Iterator[Sequence[str]]:
    """A row for each; those that only repeat an option share the last one."""
    repeated = [each for each in settings if each.stands_in(Place.OPTION) and not each.example]
    yield from (_row_of_model(each) for each in settings if each not in repeated)
    if repeated:
        keys = ", ".join(code(each.table_key) for each in repeated)
        yield (keys, *_row_of_model(repeated[0])[1:])


def _row_of_model(setting: Setting) -> Sequence[str]:
    example = code(setting.example) if setting.example else ""
    if setting.stands_in(Place.OPTION):
        return (code(setting.table_key), _AS_IN_RUN, example, _OF_RUN)
    return (_linked(setting.table_key, setting), _default(setting), example, _meaning(setting))


def _default(setting: Setting) -> str:
    if not setting.default_text:
        return setting.usual
    return " ".join(filter(None, (setting.default_text, setting.unit)))


def _linked(name: str, setting: Setting) -> str:
    """The name, which links to the guide of the setting."""
    return f"[{code(name)}]({setting.guide})" if setting.guide else code(name)


def _meaning(setting: Setting) -> str:
    return f"{setting.help}; {setting.note}" if setting.note else setting.help
