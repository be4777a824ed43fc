"""The records of a run and of a case have the fields that the definitions name, in their types."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence

import pytest
from msgspec import Struct

from pytest_modelperf.spec.case_definitions import CASE_SETTINGS
from pytest_modelperf.spec.case_spec import CaseSpec
from pytest_modelperf.spec.kinds import KINDS, read, read_default, read_typed
from pytest_modelperf.spec.run_definitions import RUN_SETTINGS, Place, Setting
from pytest_modelperf.spec.sources import RunSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ALL = tuple(dict.fromkeys([*RUN_SETTINGS, *CASE_SETTINGS]))
# The fields of a run apart from its settings.
_OF_THE_RUN = ["root", "models", "gateways", "typed", "has_given_seconds"]


def types_of(record: type[Struct]) -> dict[str, str]:
    own = {name: str(text) for each in record.__mro__[::-1] for name, text in _own_types(each)}
    return {name: own[name] for name in record.__struct_fields__}


def _own_types(record: type) -> Iterable[tuple[str, str]]:
    own: dict[str, str] = vars(record).get("__annotations__", {})
    return own.items()


def expected_type(setting: Setting, *, is_in_case: bool) -> str:
    """The type of its kind; None stands for a value that was not given."""
    kind = KINDS[setting.kind]
    has_default = kind.nothing is not None or (not is_in_case and setting.default is not None)
    return kind.result if has_default else f"{kind.result} | None"


def test_a_run_has_each_of_its_settings_in_the_type_of_its_kind() -> None:
    expected = {each.field: expected_type(each, is_in_case=False) for each in RUN_SETTINGS}
    found = types_of(RunSettings)

    assert set(found) == {*expected, *_OF_THE_RUN}
    assert {name: found[name] for name in expected} == expected


def test_a_case_has_each_of_its_settings_in_the_type_of_its_kind() -> None:
    expected = {each.field: expected_type(each, is_in_case=True) for each in CASE_SETTINGS}
    # Without a batch size, that of the model; mappings and core counts have a default.
    expected |= {
        "batch_sizes": "tuple[int | None, ...]",
        "cores": "tuple[int, ...]",
        "dims": KINDS["dims"].result,
        "engine_options": KINDS["pairs"].result,
        "state": KINDS["state"].result,
    }

    assert types_of(CaseSpec) == expected


def test_the_default_of_a_case_is_that_of_its_definition() -> None:
    spec = CaseSpec()
    own = [each for each in CASE_SETTINGS if each.default is not None and each not in RUN_SETTINGS]
    assert [each.field for each in own] == ["cores"]
    # Whether they were asked for decides whether a function is pinned.
    assert spec.cores == ()
    assert spec.core_counts == read_default(own[0])
    for setting in CASE_SETTINGS:
        if setting.kind == "phases":
            assert getattr(spec, setting.field) == read_default(setting)


def test_each_kind_is_that_of_a_setting() -> None:
    assert {each.kind for each in ALL} == set(KINDS)


@pytest.mark.parametrize("place", Place)
def test_no_two_settings_have_one_name_in_a_place(place: Place) -> None:
    def name(setting: Setting) -> Sequence[str]:
        if place is Place.OPTION:
            return [setting.flag, setting.ini]
        if place is Place.COMMAND:
            return [setting.command_flag]
        return [setting.word if place is Place.CALL else setting.table_key]

    names = [each for setting in ALL if setting.stands_in(place) for each in name(setting)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("setting", ALL, ids=repr)
def test_a_help_is_a_clause_in_which_code_is_marked(setting: Setting) -> None:
    for text in (setting.help, setting.typed_help):
        assert text.isprintable()
        assert "%" not in text
        assert text.count("`") % 2 == 0
        assert text[0].islower() or text[0] == "`"
        assert not text.endswith(".")


@pytest.mark.parametrize("setting", [each for each in ALL if each.example], ids=repr)
def test_an_example_is_a_value_that_can_be_read(setting: Setting) -> None:
    value = tomllib.loads(f"value = {setting.example}")["value"]
    assert read(setting, value, "here")


@pytest.mark.parametrize(
    ("setting", "typed"),
    [
        (setting, found)
        for setting in ALL
        for found in re.findall(r"`([^`]*=[^`]*)`", setting.typed_help)
        if setting.metavar is not None
    ],
    ids=str,
)
def test_commands_in_a_help_text_can_be_typed(setting: Setting, typed: str) -> None:
    text = typed.replace("PORT", "8888").replace("popen//python=PATH", "popen")
    assert read_typed(setting, [text] if setting.is_repeatable else text, "here")
