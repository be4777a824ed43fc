"""A wrong value of a setting is refused with the same words wherever the setting is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.spec.case_definitions import (
    BATCH_SIZE,
    CASE_SETTINGS,
    COMMAND_GATEWAY,
    CORES,
    GENERATE,
    PROMPT,
)
from pytest_modelperf.spec.declaring import read_spec
from pytest_modelperf.spec.run_definitions import (
    ENGINE,
    ENGINE_OPTION,
    MACHINE,
    MAX_SECONDS,
    MEASURE,
    MIN_SECONDS,
    TIMEOUT,
    TOLERANCE,
    WARMUP_SECONDS,
    Place,
    Setting,
)
from pytest_modelperf.spec.sources import read_settings
from tests.support.command import run

TOO_MUCH = (
    'takes a share such as 0.03, which is 3 %; 3 would be 300 %. If that is meant, write "300 %".'
)
# A wrong value as it is typed, as a table has it, and the words of its error.
WRONG: Mapping[Setting, tuple[str, object, str]] = {
    BATCH_SIZE: ("0", 0, "takes whole numbers of 1 or more, not 0."),
    CORES: ("1,x", [1, "x"], "takes whole numbers of 1 or more, not 'x'."),
    PROMPT: ("-1", "-1", "takes whole numbers of 0 or more, not '-1'."),
    GENERATE: ("few", "few", "takes whole numbers of 0 or more, not 'few'."),
    MAX_SECONDS: ("0", 0.0, "takes seconds above 0 and within a year, such as 10, not 0.0."),
    WARMUP_SECONDS: (
        "soon", "soon", "takes seconds above 0 and within a year, such as 10, not 'soon'."
    ),
    MIN_SECONDS: ("-2", -2.0, "takes seconds above 0 and within a year, such as 10, not -2.0."),
    TIMEOUT: ("nan", float("nan"), "takes seconds above 0 and within a year, such as 10, not nan."),
    ENGINE: (" ", " ", "takes a text, not ' '."),
    ENGINE_OPTION: ("a= ", {"a": ""}, ": a takes a text, not ''."),
    MEASURE: ("never", "never", "takes changed or always, not 'never'."),
    TOLERANCE: ("3", 3, TOO_MUCH),
    MACHINE: ("a,a", ["a", "a"], "has 'a' twice: give it once."),
}  # fmt: skip


def refusals(setting: Setting, typed: str, value: object) -> Iterator[tuple[str, str]]:
    """The message of each face that takes the setting, and the place that it begins with."""
    texts = [typed] if setting.is_repeatable else typed
    place = "pyproject.toml, [tool.modelperf"
    if setting.stands_in(Place.OPTION):
        yield message_of({setting.key: texts}, {}, {}), setting.flag
        yield message_of({}, {setting.key: texts}, {}), f"the ini key {setting.ini}"
        yield message_of({}, {}, {setting.table_key: value}), f"{place}]: {setting.table_key}"
    if setting.stands_in(Place.MODEL):
        model = {"models": {"m": {setting.table_key: value}}}
        yield message_of({}, {}, model), f'{place}.models."m"]: {setting.table_key}'
    if setting.stands_in(Place.CALL):
        with pytest.raises(UsageError) as caught:
            read_spec({"model": "m", setting.word: value}, "modelperf", Path)
        yield str(caught.value), f"modelperf: {setting.word}"
    if setting.stands_in(Place.COMMAND):
        command = ("compare", "m", "m") if setting is TOLERANCE else ("profile", "m")
        done = run(*command, setting.command_flag, typed)
        assert (done.exit_code, done.out) == (2, "")
        yield done.err.removeprefix("Error: ").removesuffix("\n"), setting.command_flag


def message_of(
    typed: Mapping[str, object], ini: Mapping[str, object], table: Mapping[str, object]
) -> str:
    with pytest.raises(UsageError) as caught:
        read_settings(Path("/project"), typed, ini, table)
    return str(caught.value)


@pytest.mark.parametrize("setting", WRONG, ids=repr)
def test_a_wrong_value_has_the_same_words_in_every_place(setting: Setting) -> None:
    typed, value, words = WRONG[setting]
    space = "" if words.startswith(":") else " "
    found = list(refusals(setting, typed, value))

    assert len(found) >= len(setting.places)
    assert [message for message, _ in found] == [f"{place}{space}{words}" for _, place in found]


def test_every_option_of_a_command_that_can_be_wrong_alone_is_tried() -> None:
    """The others take any text, or are wrong only with a model."""
    tried = {setting.command for setting in WRONG}
    others = {"cluster", "dim", "input", "input_file", "state", "static", "workload"}
    all_of_command = {each.command for each in CASE_SETTINGS if each.stands_in(Place.COMMAND)}
    assert all_of_command - tried <= others
    assert COMMAND_GATEWAY.kind == "text"
