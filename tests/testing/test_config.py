"""A setting comes from the nearest source that has it, and what means nothing is refused there."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from inline_snapshot import snapshot
from msgspec import structs

from pytest_modelperf.comparing.budgets import Budget
from pytest_modelperf.comparing.limits import DEFAULT_TOLERANCE, Tolerances, read_tolerances
from pytest_modelperf.comparing.records import Measure
from pytest_modelperf.errors import UsageError
from pytest_modelperf.files.documents import read_table
from pytest_modelperf.graph.structure import Phase
from pytest_modelperf.obtaining.origins import ModelOrigin, OriginKind
from pytest_modelperf.spec.case_spec import CaseSpec, DeclaredMember, DeclaredWorkload
from pytest_modelperf.spec.declaring import MODEL_KEYS, ModelTables, matches
from pytest_modelperf.spec.kinds import read, read_default, read_typed
from pytest_modelperf.spec.run_definitions import RUN_SETTINGS, Setting, UpdateMode
from pytest_modelperf.spec.sources import RunSettings, check_ini_keys, read_settings
from tests.support.known import known

_ROOT = Path("/project")
ALWAYS = Measure.ALWAYS


def _settings(
    command_line: Mapping[str, object] | None = None,
    ini: Mapping[str, object] | None = None,
    table: Mapping[str, object] | None = None,
) -> RunSettings:
    return read_settings(_ROOT, command_line or {}, ini or {}, table)


def _refusal(
    command_line: Mapping[str, object] | None = None,
    ini: Mapping[str, object] | None = None,
    table: Mapping[str, object] | None = None,
) -> str:
    with pytest.raises(UsageError) as caught:
        _settings(command_line, ini, table)
    return str(caught.value)


def _wrapped(message: str) -> str:
    return textwrap.fill(message, 90, break_on_hyphens=False, subsequent_indent="    ")


def _table_of(text: str, folder: Path) -> Mapping[str, object] | None:
    path = folder / "pyproject.toml"
    path.write_text(text, "utf-8")
    return read_table(path)


@dataclass(frozen=True)
class _Sample:
    """An option as each source gives it, and the setting that it is then."""

    setting: str
    typed: tuple[object, object]
    ini: tuple[object, object] | None
    table: tuple[object, object] | None


def _same(setting: str, value: str) -> _Sample:
    """An option that is a text everywhere."""
    return _Sample(setting, *[(f"{value}{number}", f"{value}{number}") for number in range(3)])


# Each source says something else, and none says the default.
_SAMPLES = {
    "tolerance": _Sample(
        "tolerances",
        ("5 %", read_tolerances(0.05, "")),
        ("p50=0.06", read_tolerances({"p50": 0.06}, "")),
        ({"p99": 0.07}, read_tolerances({"p99": 0.07}, "")),
    ),
    "measure": _Sample("measure", ("always", ALWAYS), ("always", ALWAYS), ("always", ALWAYS)),
    "output_sketch": _Sample("output_sketch", (True, True), ("on", True), (True, True)),
    "max_seconds": _Sample("max_seconds", ("1.5", 1.5), ("2", 2.0), (3, 3.0)),
    "warmup_seconds": _Sample("warmup_seconds", ("0.5", 0.5), ("0.6", 0.6), (0.7, 0.7)),
    "min_seconds": _Sample("min_seconds", ("0.8", 0.8), ("0.9", 0.9), (1, 1.0)),
    "timeout": _Sample("timeout", (4.5, 4.5), ("5e0", 5.0), (6.5, 6.5)),
    "engine": _same("engine", "engine"),
    "engine_option": _Sample(
        "engine_options",
        (["a=1", "b = x=y "], {"a": "1", "b": "x=y"}),
        (["a=2"], {"a": "2"}),
        ({"a": 3}, {"a": "3"}),
    ),
    "gateway": _same("gateway", "ssh=host"),
    "static_only": _Sample("static_only", (True, True), ("on", True), (True, True)),
    "against": _same("against", "v1."),
    "baseline_python": _same("baseline_python", "old/bin/python"),
    "baseline_requirement": _Sample(
        "baseline_requirements",
        (["onnxruntime==1.22.0", "numpy<2"], ("onnxruntime==1.22.0", "numpy<2")),
        (["recorded"], ("recorded",)),
        ("openvino==2024.6", ("openvino==2024.6",)),
    ),
    "judge_engine_upgrades": _Sample(
        "judge_engine_upgrades", (True, True), ("on", True), (True, True)
    ),
    "baseline_dir": _Sample(
        "baseline_dir",
        ("a/b", _ROOT / "a/b"),
        ("../shared", _ROOT / "../shared"),
        ("/elsewhere", Path("/elsewhere")),
    ),
    "update_baseline": _Sample("update", ("new", UpdateMode.NEW), None, None),
    "uncommitted": _Sample("uncommitted", (True, True), (True, True), (True, True)),
    "strict": _Sample("strict", (True, True), (True, True), (True, True)),
    "prune": _Sample("prune", (True, True), None, None),
    "no_cache": _Sample("no_cache", (True, True), ("on", True), (True, True)),
    "json": _same("json", "run.json"),
    "markdown": _same("markdown", "run.md"),
    "html": _same("html", "run.html"),
    "benchmark_json": _same("benchmark_json", "bench.json"),
    "bencher_json": _same("bencher_json", "bencher.json"),
    "history": _same("history", "history"),
    "trace": _same("trace", "traces"),
    "cluster": _same("cluster", "local:"),
    "machine": _Sample(
        "machine",
        ("board, quiet", ("board", "quiet")),
        ("desk", ("desk",)),
        (["a+b", "c,d"], ("a+b", "c", "d")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("option", RUN_SETTINGS, ids=repr)
@pytest.mark.parametrize(("typed", "ini", "table"), [*product([False, True], repeat=3)])
def test_the_nearest_source_that_has_a_setting_decides(
    option: Setting,
    typed: bool,  # noqa: FBT001  # whether that source has it
    ini: bool,  # noqa: FBT001  # likewise
    table: bool,  # noqa: FBT001  # likewise
) -> None:
    sample = _SAMPLES[option.key]
    sources = [
        sample.typed if typed else None,
        sample.ini if ini else None,
        sample.table if table else None,
    ]
    if not option.is_in_files:
        assert sample.ini is sample.table is None
    default = getattr(_settings(), sample.setting)
    expected = next((source[1] for source in sources if source is not None), default)
    settings = _settings(
        {option.key: sources[0] and sources[0][0]},
        {option.key: sources[1] and sources[1][0]},
        {option.table_key: sources[2][0]} if sources[2] else {},
    )
    assert getattr(settings, sample.setting) == expected
    assert settings.typed == ({option.key} if typed else set())


def test_no_sample_is_a_default_or_of_no_option() -> None:
    assert set(_SAMPLES) == {option.key for option in RUN_SETTINGS}
    for sample in _SAMPLES.values():
        default = getattr(_settings(), sample.setting)
        for source in (sample.typed, sample.ini, sample.table):
            assert source is None or source[1] != default


_FLAGS_OF_FILES = [o for o in RUN_SETTINGS if o.metavar is None and o.is_in_files]


@pytest.mark.parametrize("option", _FLAGS_OF_FILES, ids=repr)
def test_a_file_that_says_false_is_not_a_file_that_says_nothing(option: Setting) -> None:
    settings = _settings(ini={option.key: False}, table={option.table_key: True})
    assert getattr(settings, option.key) is False


def test_without_any_source_all_settings_are_those_of_the_documentation() -> None:
    settings = _settings()

    found = {name: getattr(settings, name) for name in settings.__struct_fields__}
    assert list(found.pop("models")) == []
    assert {name: value for name, value in found.items() if value} == {
        "root": _ROOT,
        "tolerances": Tolerances(),
        "measure": Measure.CHANGED,
        "max_seconds": 10.0,
        "timeout": 300.0,
        "engine": "onnxruntime",
        "baseline_dir": _ROOT / "baselines",
    }


def test_a_time_may_be_given_anywhere() -> None:
    """Without a given time, a slow model may take longer."""
    assert not _settings().has_given_seconds
    assert _settings(command_line={"max_seconds": "10"}).has_given_seconds
    assert _settings(ini={"max_seconds": "10"}).has_given_seconds
    assert _settings(table={"max_seconds": 10}).has_given_seconds
    terms = CaseSpec(max_seconds=4.0)
    assert _settings().for_model(terms).has_given_seconds


@pytest.mark.parametrize(
    "key", ["baseline_dir", "history", "trace", "json", "markdown", "html", "baseline_python"]
)
def test_a_tilde_in_a_path_is_the_home_folder(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No shell expands it after `=`, or in a file."""
    monkeypatch.setenv("HOME", "/home/ada")
    for source in ("command_line", "ini", "table"):
        assert str(getattr(_settings(**{source: {key: "~/place"}}), key)) == "/home/ada/place"
    unknown = _settings(table={"baseline_dir": "~no such user"})
    assert unknown.baseline_dir == _ROOT / "~no such user"


def test_a_wrong_way_to_measure_is_answered_with_the_choices() -> None:
    wrong = "takes changed or always, not 'never'."
    assert _refusal({"measure": "never"}) == f"--modelperf-measure {wrong}"
    assert _refusal(ini={"measure": "never"}) == f"the ini key modelperf_measure {wrong}"
    place = "pyproject.toml, [tool.modelperf"
    assert _refusal(table={"measure": "never"}) == f"{place}]: measure {wrong}"
    of_model = {"models": {"m.onnx": {"measure": "never"}}}
    assert _refusal(table=of_model) == f'{place}.models."m.onnx"]: measure {wrong}'


@pytest.mark.parametrize("key", ["warmup_seconds", "min_seconds"])
def test_a_least_time_above_the_longest_is_refused(key: str) -> None:
    message = f"{key} is 12, which is longer than max_seconds, 10: make max_seconds 24, or"
    with pytest.raises(UsageError, match=message):
        _settings(command_line={key: "12"})
    terms = structs.replace(CaseSpec(), **{key: 12.0})
    with pytest.raises(UsageError, match=message):
        _settings().for_model(terms)
    assert getattr(_settings(command_line={"max_seconds": "20"}).for_model(terms), key) == 12.0
    assert getattr(_settings(command_line={key: "3"}).for_model(terms), key) == 3.0


@pytest.mark.parametrize("option", RUN_SETTINGS, ids=repr)
def test_a_default_that_is_shown_can_be_typed(option: Setting) -> None:
    if option.default_text:
        assert read_typed(option, option.default_text, "here") == read_default(option)
    else:
        assert not option.default


# Options whose flag or key of the table differs from the others by more than its form.
_OTHER_FLAGS = {"judge_engine_upgrades": "--modelperf-judge-upgrades"}
_OTHER_TABLE_KEYS = {
    "engine_option": "engine_options",
    "baseline_requirement": "baseline_requirements",
}


@pytest.mark.parametrize("option", RUN_SETTINGS, ids=repr)
def test_options_are_named_alike_everywhere(option: Setting) -> None:
    flag = f"--modelperf-{option.key.replace('_', '-')}"
    assert option.flag == _OTHER_FLAGS.get(option.key, flag)
    if option.is_in_files:
        assert option.ini == f"modelperf_{option.key}"
        assert option.table_key == _OTHER_TABLE_KEYS.get(option.key, option.key)


@pytest.mark.parametrize("option", RUN_SETTINGS, ids=repr)
def test_a_help_is_one_plain_line(option: Setting) -> None:
    """Without a percent sign, which the parser of options would take for a placeholder."""
    assert option.option_help.isprintable()
    assert not set(option.option_help) & set("%\n")
    assert option.option_help[0].islower()
    assert not option.option_help.endswith(".")


def test_the_implied_value_of_an_option_is_one_of_its_values() -> None:
    implied = [
        (option.key, read(option, option.implied, "")) for option in RUN_SETTINGS if option.implied
    ]
    assert implied == [("update_baseline", UpdateMode.ALL)]


def test_options_that_were_not_given_do_not_count_as_typed() -> None:
    """None, the empty list of a repeatable option and an empty ini key do not count."""
    settings = _settings(
        {"engine_option": [], "engine": None, "strict": None},
        {"engine_option": [], "engine": "", "strict": None},
        {"engine_options": {"a": "1"}, "engine": "openvino", "strict": True},
    )
    assert (settings.engine, dict(settings.engine_options)) == ("openvino", {"a": "1"})
    assert settings.strict
    assert settings.typed == set()


def test_a_key_may_have_hyphens() -> None:
    settings = _settings(table={"max-seconds": 3, "models": {"a.onnx": {"batch-size": 8}}})
    assert settings.max_seconds == 3.0
    assert [spec.batch_sizes for _, spec in settings.models.items()] == [(8,)]


@pytest.mark.parametrize(
    ("text", "value"),
    [(text, True) for text in ("true", "True", "YES", "y", "t", "on", "1")]
    + [(text, False) for text in ("false", "False", "NO", "n", "f", "off", "0")],
)  # fmt: skip
def test_an_ini_key_says_yes_and_no_as_those_of_pytest_do(text: str, *, value: bool) -> None:
    assert _settings(ini={"strict": text}).strict is value


def test_engine_options_are_lines_of_an_ini_key() -> None:
    settings = _settings(ini={"engine_option": "\nsession.x = 1\n\nprovider=CPU\n"})
    assert settings.engine_options == {"session.x": "1", "provider": "CPU"}


def test_a_name_with_dots_needs_no_quotes_in_a_table(tmp_path: Path) -> None:
    table = _table_of(
        "[tool.modelperf.engine_options]\nsession.intra_op.x = 0\nplain = 'y'", tmp_path
    )
    assert _settings(table=table).engine_options == {"session.intra_op.x": "0", "plain": "y"}


def test_engine_options_of_a_file_are_left_out_if_another_engine_is_typed() -> None:
    table = {"engine": "openvino", "engine_options": {"device": "GPU"}}
    assert _settings({"engine": "openvino"}, {}, table).engine_options == {"device": "GPU"}
    assert _settings({"engine": "onnxruntime"}, {}, table).engine_options == {}
    assert _settings(
        {"engine": "onnxruntime", "engine_option": ["a=1"]}, {}, table
    ).engine_options == {"a": "1"}


def test_the_revision_of_a_file_is_left_out_if_all_cases_are_typed_to_be_recorded() -> None:
    assert _settings({"update_baseline": "new"}, {}, {"against": "main"}).against == "main"
    assert _settings({"update_baseline": "all"}, {}, {"against": "main"}).against is None


def _idle(option: str, reason: str = "") -> str:
    return f"--modelperf-{option} would have no effect: {reason}"


_COUNTS = "with --modelperf-static-only"
_RECORDS = "--modelperf-update-baseline records"
# The options, the table, and the beginning of the error; None if there is no error.
_TOGETHER: list[tuple[dict[str, object], dict[str, object], str | None]] = [
    ({"static_only": True, "baseline_python": "p"}, {}, _idle("baseline-python", _COUNTS)),
    ({"static_only": True, "trace": "traces"}, {}, _idle("trace")),
    ({"static_only": True, "cluster": "a"}, {}, _idle("cluster")),
    ({"static_only": True}, {"cluster": "a"}, None),
    ({"cluster": "a", "against": "v1"}, {}, None),
    ({"baseline_python": "p"}, {"cluster": "a"}, "--modelperf-baseline-python needs a Python"),
    ({"cluster": "a"}, {"baseline_python": "p"}, "--modelperf-baseline-python needs a Python"),
    ({"static_only": True}, {"trace": "traces", "baseline_python": "python3"}, None),
    ({"trace": "traces"}, {"static_only": True}, _idle("trace")),
    ({}, {"static_only": True, "trace": "traces"}, _idle("trace")),
    ({"update_baseline": "all", "against": "main"}, {}, _idle("against", f"{_RECORDS} every")),
    ({"update_baseline": "all", "baseline_python": "p"}, {}, _idle("baseline-python", _RECORDS)),
    ({"update_baseline": "all"}, {"against": "main"}, None),
    ({"against": "main", "history": "kept"}, {}, _idle("history", "the history has ratios")),
    ({"against": "main"}, {"history": "kept"}, None),
    ({"update_baseline": "new", "against": "main", "baseline_python": "python3"}, {}, None),
    (
        {"static_only": True, "baseline_requirement": ["onnxruntime==1.22.0"]},
        {},
        _idle("baseline-requirement", _COUNTS),
    ),
    (
        {"update_baseline": "all", "judge_engine_upgrades": True},
        {},
        _idle("judge-upgrades", _RECORDS),
    ),
    ({"update_baseline": "all"}, {"judge_engine_upgrades": True}, None),
    (
        {"baseline_python": "python3", "baseline_requirement": ["recorded"]},
        {},
        "--modelperf-baseline-python and --modelperf-baseline-requirement both say what the",
    ),
    (
        {},
        {"judge_engine_upgrades": True, "baseline_requirements": ["recorded"]},
        "--modelperf-baseline-requirement and --modelperf-judge-upgrades both say what the",
    ),
    (
        {"against": "main", "judge_engine_upgrades": True},
        {},
        _idle("judge-upgrades", "the engine of a baseline is judged"),
    ),
    (
        {"against": "main", "baseline_requirement": ["recorded"]},
        {},
        "--modelperf-baseline-requirement recorded needs a baseline",
    ),
    ({"against": "main", "baseline_requirement": ["onnxruntime==1.22.0"]}, {}, None),
]


def test_typed_options_choose_the_python_of_the_baseline() -> None:
    table = {"baseline_python": "old/bin/python", "judge_engine_upgrades": False}
    chosen = _settings({"baseline_requirement": ["recorded"]}, {}, table)
    assert (chosen.baseline_python, chosen.baseline_requirements) == (None, ("recorded",))
    chosen = _settings({"judge_engine_upgrades": True}, {}, table)
    assert (chosen.baseline_python, chosen.judges_upgrades) == (None, True)
    chosen = _settings({"baseline_python": "python3"}, {}, {"judge_engine_upgrades": True})
    assert (chosen.baseline_python, chosen.judges_upgrades) == ("python3", False)


@pytest.mark.parametrize(
    "typed", [{"static_only": True}, {"against": "main"}, {"update_baseline": "all"}]
)
def test_a_run_that_compares_with_no_baseline_judges_no_upgrade(typed: dict[str, object]) -> None:
    assert not _settings(typed, {}, {"judge_engine_upgrades": True}).judges_upgrades


@pytest.mark.parametrize(("typed", "table", "message"), _TOGETHER)
def test_a_setting_that_another_one_leaves_without_effect_is_an_error(
    typed: dict[str, object], table: dict[str, object], message: str | None
) -> None:
    """But typed options come before those in a file."""
    if message is None:
        _settings(command_line=typed, table=table)
        return
    with pytest.raises(UsageError, match=re.escape(message)):
        _settings(command_line=typed, table=table)


_WRONG: Mapping[str, list[object]] = {
    "tolerance": ["fast", True, [], 3, {"p1": 0.1}],
    "measure": ["", "Changed", "never", True, 3, [], ["always"], {}],
    "output_sketch": ["yes", 1, [], {}],
    "max_seconds": ["10", 0, -1, True, float("nan"), float("inf"), 10**400, [], {}],
    "warmup_seconds": ["1", 0, -1, True],
    "min_seconds": ["1", 0, -1, True],
    "timeout": ["10", 0, -1, False],
    "engine": ["", " ", 3, True, ["onnxruntime"]],
    "engine_options": ["a=1", ["a=1"], {"a": True}, {"a": ""}, {"": {"": []}}, 3],
    "gateway": [3, "", "ssh=", "popen//ssh=a", "ssh=a//b=c", "popen//python=/no/python"],
    "static_only": ["true", 1, 0, "", []],
    "against": [3, ""],
    "baseline_python": [3, ""],
    "baseline_requirements": [3, "", [], [3], ["a", "a"]],
    "judge_engine_upgrades": ["true", 1, {}],
    "baseline_dir": [3, ""],
    "uncommitted": ["true", 1, {}],
    "strict": ["true", 1, {}],
    "no_cache": ["true", 1, {}],
    "json": [True, ""],
    "markdown": [True, ""],
    "html": [True, ""],
    "benchmark_json": [True, ""],
    "bencher_json": [True, ""],
    "history": [3, ""],
    "trace": [True, ""],
    "cluster": [3, ""],
    "machine": [3, "", ",", [], ["a", "a"], "a,a", {}],
    "models": ["a.onnx", [{"path": "a.onnx"}], True],
    "machines": ["ssh=a", {"a": 3}, {"a": "ssh=a//shs=b"}, {"a": "b"}, {"popen": "ssh=a"}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [pytest.param(k, v, id=f"{k}={str(v)[:20]}") for k, values in _WRONG.items() for v in values],
)
def test_a_wrong_value_of_the_table_is_refused_with_its_place(key: str, value: object) -> None:
    place = f".{key}]" if key in {"models", "machines"} else f"]: {key}"
    assert _refusal(table={key: value}).startswith(f"pyproject.toml, [tool.modelperf{place}")


def test_every_key_of_the_table_has_wrong_values() -> None:
    assert set(_WRONG) == {o.table_key for o in RUN_SETTINGS if o.is_in_files} | {
        "models",
        "machines",
    }


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("max_seconds", "ten", "takes seconds above 0 and within a year, such as 10, not 'ten'."),
        ("max_seconds", "nan", "takes seconds above 0 and within a year, such as 10, not nan."),
        ("strict", "maybe", "takes true or false, not 'maybe'."),
        ("engine", ["a"], "takes a text, not a list."),
        ("baseline_dir", "a\0", r"takes a text without the character NUL, not 'a\x00'."),
        ("json", "\0", r"takes a text without the character NUL, not '\x00'."),
        ("engine_option", ["a"], "takes KEY=VALUE, not 'a'."),
        ("engine_option", ["=a"], "takes KEY=VALUE, not '=a'."),
        ("engine_option", ["a=1", "a=2"], ": a is given twice: give it once."),
        ("engine_option", ["a="], ": a takes a text, not ''."),
        ("tolerance", "p5=1", ": 'p5' is not a figure with a tolerance. Did you mean 'p95'?"),
    ],
)
def test_the_error_of_a_wrong_value_has_the_name_it_was_given_by(
    key: str, text: object, message: str
) -> None:
    option = next(option for option in RUN_SETTINGS if option.key == key)
    space = "" if message.startswith(":") else " "
    assert _refusal({key: text}).startswith(f"{option.flag}{space}{message}")
    assert _refusal({}, {key: text}).startswith(f"the ini key {option.ini}{space}{message}")


def test_a_wrong_value_is_refused_even_if_a_nearer_source_decides() -> None:
    assert "[tool.modelperf]: max_seconds" in _refusal({"max_seconds": 3}, {}, {"max_seconds": "x"})
    assert "modelperf_max_seconds" in _refusal({"max_seconds": 3}, {"max_seconds": "x"})


def test_the_error_of_a_removed_mode_says_how_to_write_it_as_a_test() -> None:
    assert _refusal({"update_baseline": "m.onnx::b1-c1"}) == (
        "--modelperf-update-baseline takes all, new or improved, not 'm.onnx::b1-c1'. "
        "In front of a file or a test, write --modelperf-update-baseline=all."
    )


@pytest.mark.parametrize("option", [o for o in RUN_SETTINGS if not o.is_in_files], ids=repr)
def test_options_that_change_baselines_can_only_be_typed(option: Setting) -> None:
    reason = (
        "can only be given on the command line, so that no run changes baselines unasked: "
        f"pytest --modelperf {option.flag}"
    )
    hyphened = option.key.replace("_", "-")
    for key in (option.key, hyphened):
        place = f"pyproject.toml, [tool.modelperf]: {key}"
        assert _refusal(table={key: "all"}) == f"{place} {reason}"
    assert _refusal(ini={option.key: "all"}) == f"the ini key {option.ini} {reason}"
    with pytest.raises(UsageError) as caught:
        check_ini_keys(["testpaths", option.ini])
    assert str(caught.value) == f"the ini key {option.ini} {reason}"


def test_unknown_ini_keys_of_ours_are_refused_and_those_of_others_ignored() -> None:
    ours = [option.ini for option in RUN_SETTINGS if option.is_in_files]
    check_ini_keys([*ours, "testpaths", "markers", "models_dir", "modelperformance", ""])


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("modelperf_max_second", " Did you mean modelperf_max_seconds?"),
        ("modelperf-max-seconds", " Did you mean modelperf_max_seconds?"),
        ("modelperf_max-seconds", " Did you mean modelperf_max_seconds?"),
        ("modelperf_engine_options", " Did you mean modelperf_engine_option?"),
        ("modelperf_qqqq", ""),
        ("modelperf_", ""),
    ],
)
def test_an_unknown_ini_key_is_refused_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_ini_keys(["testpaths", name])
    assert str(caught.value).startswith(
        f"there is no ini key {name!r}.{hint} There are: modelperf_tolerance, "
    )


def test_an_unknown_key_and_one_that_is_written_in_two_ways_are_refused() -> None:
    assert _wrapped(_refusal(table={"max_second": 3})) == snapshot("""\
pyproject.toml, [tool.modelperf]: there is no key 'max_second'. Did you mean
    'max_seconds'? There are: tolerance, measure, output_sketch, max_seconds,
    warmup_seconds, min_seconds, timeout, engine, engine_options, gateway, static_only,
    against, baseline_python, baseline_requirements, judge_engine_upgrades, baseline_dir,
    uncommitted, strict, no_cache, json, markdown, html, benchmark_json, bencher_json,
    history, trace, cluster, machine, models, machines.\
""")
    assert _refusal(table={"max_seconds": 3, "max-seconds": 3}) == (
        "pyproject.toml, [tool.modelperf]: max_seconds is given twice, "
        "with a hyphen and an underscore: give it once."
    )


# The table of a model, as it is written and as it is read.
_MODELS: Mapping[str, tuple[str, CaseSpec]] = {
    "make": (
        "'tools.export:encoder'",
        CaseSpec(origin=ModelOrigin(OriginKind.FUNCTION, "tools.export:encoder")),
    ),
    "url": (
        f"'https://host/a.onnx#sha256={'0' * 64}'",
        CaseSpec(origin=ModelOrigin(OriginKind.URL, "https://host/a.onnx", sha256="0" * 64)),
    ),
    "batch_size": ("[1, 8]", CaseSpec(batch_sizes=(1, 8))),
    "cores": ("2", CaseSpec(cores=(2,))),
    "dims": ("{seq = [64, 128], 'a.b' = 3}", CaseSpec(dims={"seq": (64, 128), "a.b": (3,)})),
    "inputs": ("'ids:i64:1x64'", CaseSpec(inputs=("ids:i64:1x64",))),
    "prompt": ("[128, 512]", CaseSpec(prompts=(128, 512))),
    "generate": ("64", CaseSpec(generates=(64,))),
    "phase": ("'step'", CaseSpec(phases=(Phase.STEP,))),
    "state": (
        "{past.0 = 'present.0', style = ''}",
        CaseSpec(state={"past.0": "present.0", "style": ""}),
    ),
    "input_file": ("'arrays.npz'", CaseSpec(input_file=Path("arrays.npz"))),
    "workload": (
        "[{dims = {seq = 16}, weight = 5}, {input_file = 'a.npz'}, 'b.npz']",
        CaseSpec(
            workload=DeclaredWorkload(
                (
                    DeclaredMember(dims={"seq": 16}, weight=5),
                    DeclaredMember(file=Path("a.npz")),
                    DeclaredMember(file=Path("b.npz")),
                )
            )
        ),
    ),
    "budget": (
        "{macs = '4G', latency_ms = 12}",
        CaseSpec(budgets=(Budget("macs", 4e9), Budget("latency_ms", 12.0))),
    ),
    "tolerance": ("'5 %'", CaseSpec(tolerances=read_tolerances(0.05, ""))),
    "engine": ("'openvino'", CaseSpec(engine="openvino")),
    "engine_options": ("{x.y = 1}", CaseSpec(engine_options={"x.y": "1"})),
    "gateway": ("'ssh=a'", CaseSpec(gateway="ssh=a")),
    "measure": ("'always'", CaseSpec(measure=ALWAYS)),
    "output_sketch": ("true", CaseSpec(output_sketch=True)),
    "max_seconds": ("3", CaseSpec(max_seconds=3.0)),
    "warmup_seconds": ("2", CaseSpec(warmup_seconds=2.0)),
    "min_seconds": ("2", CaseSpec(min_seconds=2.0)),
    "baseline": ("'old/m.onnx'", CaseSpec(baseline="old/m.onnx")),
    "machines": ("['a', 'b+c']", CaseSpec(machines=("a", "b+c"))),
}


@pytest.mark.parametrize("key", MODEL_KEYS)
def test_each_key_of_a_model_is_one_thing_about_it(key: str, tmp_path: Path) -> None:
    written, expected = _MODELS[key]
    table = _table_of(f"[tool.modelperf.models.m]\n{key} = {written}", tmp_path)
    assert list(_settings(table=table).models.items()) == [("m", expected)]


def test_models_keep_the_order_in_which_they_are_written(tmp_path: Path) -> None:
    source = """
        [tool.modelperf.models."z/*.onnx"]
        [tool.modelperf.models."./a//b.onnx"]
        [tool.modelperf.models.plain]
    """
    table = _table_of(source, tmp_path)
    assert list(_settings(table=table).models) == ["z/*.onnx", "a/b.onnx", "plain"]


_NO_SIZES: list[object] = [0, -1, True, 1.0, "8", [], {}, [1, 1], [1, 0], [[1]], [1, True]]
_WRONG_IN_MODELS: Mapping[str, list[object]] = {
    "make": [3, "", "encoder", "tools.export:", ":encoder", "tools/export.py:encoder"],
    "url": [3, "", "https://host/a.onnx", "https://host/a.onnx#sha256=1", "hf://a/b/c#sha256=1"],
    "batch_size": _NO_SIZES,
    "cores": _NO_SIZES,
    "dims": [3, [], "seq=64", {"seq": -1}, {"seq": []}, {"seq": [2, 2]}, {"seq": True}],
    "inputs": [3, [], "", ["a", "a"], [3], {}],
    "prompt": [-1, True, 1.0, "8", [], {}, [1, 1]],
    "generate": [-1, True, 1.0, "8", [], {}, [1, 1]],
    "phase": [3, "", [], "steps", ["step", "step"], ["step", "all"], {}],
    "state": ["past=present", ["past"], {"past": True}, {"past": []}],
    "input_file": [3, "", []],
    "workload": [
        3,
        "",
        {},
        [3],
        [{}],
        [{"dims": {}}],
        [{"dims": [16]}],
        [{"dims": {"seq": -1}}],
        [{"dims": {"seq": 16}, "input_file": "a.npz"}],
        [{"dims": {"seq": 16}, "weight": 0}],
        [{"dims": {"seq": 16}, "weight": 0.5}],
        [{"dim": {"seq": 16}}],
        [{"input_file": 3}],
    ],
    "budget": [3, "macs=4G", [], {"macs": 0}, {"mac": 3}, {"latency_ms": 3, "p50_ms": 3}],
    "tolerance": [3, True, "fast", [], {}],
    "engine": [3, "", []],
    "engine_options": ["a=1", ["a=1"], {"a": True}],
    "gateway": [3, "", [], "board", "ssh=a//ssh=b", "popen//python=/no/such/python"],
    "measure": ["", "never", True, ["always"]],
    "output_sketch": ["yes", 1, []],
    "max_seconds": ["3", 0, True],
    "warmup_seconds": ["3", 0, True],
    "min_seconds": ["3", 0, True],
    "baseline": [3, "", "/m.onnx", "../m.onnx", "."],
    "machines": [3, "", [], ["a", "a"], [3], {}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [pytest.param(k, v, id=f"{k}={v}") for k, values in _WRONG_IN_MODELS.items() for v in values],
)
def test_a_wrong_value_of_a_model_is_refused_with_its_place(key: str, value: object) -> None:
    message = _refusal(table={"models": {"m.onnx": {key: value}}})
    assert message.startswith(f'pyproject.toml, [tool.modelperf.models."m.onnx"]: {key}')


def test_every_key_of_a_model_has_wrong_values() -> None:
    assert set(_WRONG_IN_MODELS) == set(MODEL_KEYS)


@pytest.mark.parametrize("value", [3, [], True, "x"])
def test_a_model_is_a_table(value: object) -> None:
    assert _refusal(table={"models": {"m.onnx": value}}).startswith(
        'pyproject.toml, [tool.modelperf.models."m.onnx"] takes a table, not '
    )


def test_messages_say_file_place_what_was_found_and_what_is_expected() -> None:
    wrong: list[tuple[str, object]] = [
        ("batch_size", [1, "8"]),
        ("batch_size", [1, 8, 1]),
        ("cores", []),
        ("dims", {"seq": -1}),
        ("budget", {"mac": 3}),
        ("budgets", {"macs": 3}),
        ("engine_options", {"threads": True}),
        ("baseline", "../m.onnx"),
    ]
    messages = [_refusal(table={"models": {"m.onnx": {key: value}}}) for key, value in wrong]

    assert "\n".join(map(_wrapped, messages)) == snapshot("""\
pyproject.toml, [tool.modelperf.models."m.onnx"]: batch_size takes whole numbers of 1 or
    more, not '8'.
pyproject.toml, [tool.modelperf.models."m.onnx"]: batch_size has 1 twice: give it once.
pyproject.toml, [tool.modelperf.models."m.onnx"]: cores is an empty list: give something,
    or leave it out.
pyproject.toml, [tool.modelperf.models."m.onnx"]: dims: seq takes whole numbers of 0 or
    more, not -1.
pyproject.toml, [tool.modelperf.models."m.onnx"]: budget: there is no budget 'mac'. Did
    you mean 'macs'? There are: latency_ms, p50_ms, p90_ms, p95_ms, p97_ms, p99_ms,
    p99_9_ms, max_ms, deadline_ms, real_time_factor, items_per_second, ttft_ms, token_ms,
    tokens_per_second, cache_bytes_per_token, first_item_ms, item_ms, load_ms,
    first_inference_ms, peak_memory_mb, growth_kb_per_inference, macs, flops, params,
    size_mb, kernels, install_bytes, speedup, drift, improved_beyond.
pyproject.toml, [tool.modelperf.models."m.onnx"]: there is no key 'budgets'. Did you mean
    'budget'? There are: make, url, batch_size, cores, dims, inputs, prompt, generate,
    phase, state, input_file, workload, budget, baseline, machines, tolerance, measure,
    output_sketch, max_seconds, warmup_seconds, min_seconds, engine, engine_options,
    gateway.
pyproject.toml, [tool.modelperf.models."m.onnx"]: engine_options: threads takes a text,
    not true.
pyproject.toml, [tool.modelperf.models."m.onnx"]: baseline: give a path below the folder
    of the project, such as models/a.onnx; not '../m.onnx'.\
""")


@pytest.mark.parametrize(
    "pattern", ["/m.onnx", "../m.onnx", "a/../m.onnx", "", ".", "//m.onnx", "a/.."]
)
def test_a_pattern_that_leaves_the_root_is_refused(pattern: str) -> None:
    assert f'[tool.modelperf.models."{pattern}"]' in _refusal(table={"models": {pattern: {}}})


def test_two_tables_of_one_path_are_refused() -> None:
    assert _refusal(table={"models": {"a.onnx": {}, "./a.onnx": {}}}) == (
        'pyproject.toml, [tool.modelperf.models."./a.onnx"]: there is another table of a.onnx: '
        "make them one."
    )


def test_the_error_of_a_path_without_quotes_mentions_them(tmp_path: Path) -> None:
    table = _table_of("[tool.modelperf.models.m.onnx]\ncores = 2", tmp_path)
    assert _refusal(table=table).startswith(
        "pyproject.toml, [tool.modelperf.models.\"m\"]: there is no key 'onnx'. "
        "A model has a table of its own, with the whole path in quotes: "
        '[tool.modelperf.models."models/a.onnx"]. There are: make, url, batch_size, '
    )


def test_a_name_in_a_message_can_make_a_terminal_do_nothing() -> None:
    bad = "\x1b[31m\u202e"
    tables: list[Mapping[str, object]] = [
        {bad: 3},
        {"engine_options": {bad: True}},
        {"models": {bad: 3}},
        {"models": {f"/{bad}": {}}},
        {"models": {"m": {"dims": {bad: -1}}}},
        {"models": {"m": {"inputs": [bad, bad]}}},
        {"max_seconds": bad},
    ]
    messages = [_refusal(table=table) for table in tables]
    messages.append(_refusal({"engine_option": [bad]}))
    assert all(message.isprintable() for message in messages)


_FILES = [
    "m.onnx", "n.ort", "a/m.onnx", "a/b/m.onnx", "a/b/c/m.onnx", "b/m1.onnx", "b/m2.onnx",
    "b/.hidden.onnx", "b/M.onnx", "b/[x].onnx", "x/a/m.onnx",
]  # fmt: skip


@pytest.mark.parametrize(
    "pattern",
    ["*", "*.onnx", "*/*.onnx", "**/*.onnx", "**/m.onnx", "a/**/m.onnx", "a/**/*", "**/b/*.onnx",
     "**/**/m.onnx", "**/a/**/m.onnx", "b/m?.onnx", "b/m[1].onnx", "b/m[!1].onnx", "b/m[0-9].onnx",
     "b/[[]x].onnx", "*/m*.onnx", "a/*/m.onnx", "a/b/m.onnx", "*/*/*/*", "?.onnx", "b/.*", "**/.*"],
)  # fmt: skip
def test_a_pattern_names_what_globbing_finds(pattern: str, tmp_path: Path) -> None:
    for name in _FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.glob(pattern) if path.is_file()}
    assert found
    assert {name for name in _FILES if matches(name, pattern)} == found


_PARTS = st.text("abm.", min_size=1, max_size=3).filter(lambda part: part not in {".", ".."})


@given(st.lists(_PARTS, min_size=1, max_size=4), st.data())
def test_a_path_with_some_of_it_left_open_is_still_named(
    parts: list[str], data: st.DataObject
) -> None:
    start, end = sorted(data.draw(st.integers(0, len(parts))) for _ in range(2))
    path = "/".join(parts)
    opened = [*parts[:start], *data.draw(st.sampled_from([["**"], ["**", "**"]])), *parts[end:]]
    starred = ["*" if start <= place < end else part for place, part in enumerate(parts)]
    assert matches(path, "/".join(opened))
    assert matches(path, "/".join(starred))
    assert not matches(path, f"{path}/*")


@pytest.mark.parametrize("path", ["/a/m.onnx", "../m.onnx", "a/../../m.onnx"])
def test_no_pattern_names_what_is_not_below_the_root(path: str) -> None:
    assert not matches(path, "**/*.onnx")


def _with_models(*patterns: str) -> RunSettings:
    """Settings with a table for each pattern, which names itself as its baseline."""
    return _settings(table={"models": {pattern: {"baseline": pattern} for pattern in patterns}})


def test_the_table_of_a_model_is_that_of_its_exact_path_before_globs() -> None:
    settings = _with_models("*.onnx", "m*.onnx", "m.onnx")
    for path in ("m.onnx", "./m.onnx"):
        spec = known(settings.spec_for(path))
        assert spec.baseline == "m.onnx"
    spec = known(_with_models("m[1].onnx", "*.onnx").spec_for("m[1].onnx"))
    assert spec.baseline == "m[1].onnx"
    assert _with_models("a/*.onnx").spec_for("m.onnx") is None
    assert _settings().spec_for("m.onnx") is None


def test_tables_that_name_one_model_each_are_looked_up() -> None:
    """However many there are: to match each would take the square of their number."""
    matched: list[str] = []

    class NotedPattern(str):
        __slots__ = ()

        def split(self, *_: object) -> list[str]:
            matched.append(self)
            return ["no", "file"]

    names = [f"m{index}.onnx" for index in range(100)]
    patterns = map(NotedPattern, [*names, "other/*.onnx"])
    tables = ModelTables({pattern: CaseSpec(baseline=pattern) for pattern in patterns})

    found = [tables.own(name) for name in names]

    assert [spec.baseline for spec in found if spec is not None] == names
    assert matched == []
    assert tables.own("unknown.onnx") is None
    assert tables.globs_of("unknown.onnx") == {}
    assert matched == ["other/*.onnx"]


def test_two_globs_for_one_model_are_refused_by_name() -> None:
    settings = _with_models("a/*.onnx", "*/m.onnx", "b/*.onnx")
    with pytest.raises(UsageError) as caught:
        settings.spec_for("a/m.onnx")
    assert _wrapped(str(caught.value)) == snapshot("""\
pyproject.toml: a/m.onnx is named by [tool.modelperf.models."a/*.onnx"] and
    [tool.modelperf.models."*/m.onnx"]. Make one of them narrower, or give the model a
    table with just its path, which then counts alone.\
""")
    assert settings.spec_for("c/m.onnx") == CaseSpec(baseline="*/m.onnx")


def test_the_table_of_a_model_comes_before_all_but_what_was_typed() -> None:
    table = CaseSpec(
        tolerances=read_tolerances(0.5, ""), max_seconds=20.0, engine="own",
        engine_options={"x": "1"},
    )  # fmt: skip
    files = {"tolerance": 0.1, "max_seconds": 2, "engine": "openvino", "engine_options": {"y": 1}}
    keys = ("tolerance", "max_seconds", "engine", "engine_option")
    typed = {"tolerance": 0.2, "max_seconds": 3, "engine": "typed", "engine_option": ["z=1"]}

    def settings_with(*given: str) -> tuple[object, ...]:
        made = _settings({key: typed[key] for key in given}, {}, files).for_model(table)
        return made.tolerances.of(50.0), made.max_seconds, made.engine, made.engine_options

    assert settings_with() == (0.5, 20.0, "own", {"x": "1"})
    assert settings_with("tolerance") == (0.2, 20.0, "own", {"x": "1"})
    assert settings_with("max_seconds") == (0.5, 3.0, "own", {"x": "1"})
    assert settings_with("engine") == (0.5, 20.0, "typed", {})
    assert settings_with("engine_option") == (0.5, 20.0, "own", {"z": "1"})
    assert settings_with(*keys) == (0.2, 3.0, "typed", {"z": "1"})


def test_a_model_of_another_engine_does_not_take_the_options_of_this_one() -> None:
    settings = _settings(table={"engine": "openvino", "engine_options": {"device": "GPU"}})

    def options(spec: CaseSpec) -> Mapping[str, str]:
        return settings.for_model(spec).engine_options

    assert options(CaseSpec(engine="own")) == {}
    assert options(CaseSpec(engine="openvino")) == {"device": "GPU"}
    assert options(CaseSpec()) == {"device": "GPU"}
    assert options(CaseSpec(engine_options={"x": "1"})) == {"x": "1"}


def test_no_table_is_not_an_empty_one(tmp_path: Path) -> None:
    assert read_table(tmp_path / "pyproject.toml") is None
    for text in ("", "[project]\nname='x'", "[tool.other]\nx=1", "tool = 3"):
        assert _table_of(text, tmp_path) is None
    assert _table_of("[tool.modelperf]", tmp_path) == {}


@pytest.mark.parametrize("text", ["[tool]\nmodelperf = 3", "[[tool.modelperf]]\nengine='x'"])
def test_a_value_in_place_of_our_table_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"pyproject\.toml: tool\.modelperf takes a table, not "):
        _table_of(text, tmp_path)


def test_a_file_that_cannot_be_read_as_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"pyproject\.toml is not valid TOML: .*line 2, column"):
        _table_of("[tool.modelperf]\nmax_seconds = = 3\n", tmp_path)
    path = tmp_path / "pyproject.toml"
    path.write_bytes(b"[tool.modelperf]\nengine = '\xff'\n")
    with pytest.raises(UsageError, match=r"pyproject\.toml .* TOML"):
        read_table(path)
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_table(tmp_path)


def test_the_names_of_options_are_known_without_loading_heavy_modules() -> None:
    program = (
        "import sys, pytest_modelperf.spec.run_definitions; "
        "print(*sorted(m for m in sys.modules if m.split('.')[0] in sys.argv))"
    )
    heavy = [
        "pytest",
        "_pytest",
        "numpy",
        "onnx",
        "tomllib",
        "tomli",
        "difflib",
        "pytest_modelperf",
    ]
    result = subprocess.run(
        [sys.executable, "-c", program, *heavy], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == [
        "pytest_modelperf",
        "pytest_modelperf.spec",
        "pytest_modelperf.spec.run_definitions",
    ]


def test_the_default_tolerance_is_that_of_limits() -> None:
    """It is written twice, because limits are loaded only when they are read."""
    assert _settings().tolerances.of(50.0) == DEFAULT_TOLERANCE
