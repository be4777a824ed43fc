"""Tables are added to a `pyproject.toml` whose other lines stay as they are."""

from __future__ import annotations

import sys
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.errors import UsageError
from pytest_modelperf.init.planning import add_tables
from pytest_modelperf.spec.declaring import matches, path_key, read_models

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SIZES = "# seq=64 in x[1]: a usual length\ndims = {seq = 64}\n"
PARTS = (
    '[project]  # who we are\nname = "a"\ndependencies = [\n  "numpy",  # arrays\n]\n',
    "[tool.ruff]\nline-length = 100\n\n[tool.ruff.lint]\nselect = ['ALL'] # all\n",
    "# settings of the tests\n[tool.modelperf]\nmax_seconds = 3 # short\n\n# done\n",
    '[tool.modelperf.models."old.onnx"]\ncores = [1, 2]   # both\n',
    "[tool.modelperf.machines]\nboard = 'ssh=pi'\n",
    "\n\n# nothing but a comment\n",
    "[[tool.other.list]]\nx = 1\n[[tool.other.list]]\nx = 2\n",
    "[other]\ntool.x = 1\n",
)


@given(
    parts=st.permutations(PARTS).flatmap(
        lambda parts: st.integers(0, len(parts)).map(lambda count: parts[:count])
    ),
    newline=st.sampled_from(["\n", "\r\n"]),
    gap=st.sampled_from(["", "\n"]),
    paths=st.lists(st.sampled_from(["a.onnx", "models/b c.onnx", 'q"\\.onnx']), unique=True),
)
def test_only_tables_are_added(parts: list[str], newline: str, gap: str, paths: list[str]) -> None:
    before = gap.join(parts).replace("\n", newline)
    tables = {path: SIZES if number % 2 else "" for number, path in enumerate(paths)}
    after = add_tables(before, tables)
    left = iter(after.splitlines(keepends=True))
    assert all(line in left for line in before.splitlines(keepends=True))
    assert "\n" not in after.replace("\r\n", "") or newline == "\n" or not before
    wanted = tomllib.loads(before)
    if tables:
        models = wanted.setdefault("tool", {}).setdefault("modelperf", {}).setdefault("models", {})
        models |= {path: tomllib.loads(text) for path, text in tables.items()}
    assert tomllib.loads(after) == wanted


@given(
    parts=st.lists(st.sampled_from(PARTS), unique=True),
    are_crlf=st.lists(st.booleans(), min_size=1),
)
def test_each_line_keeps_its_end(parts: list[str], are_crlf: list[bool]) -> None:
    lines = "".join(parts).splitlines(keepends=True)
    before = "".join(
        line.replace("\n", "\r\n") if is_crlf else line
        for line, is_crlf in zip(lines, cycle(are_crlf), strict=False)
    )
    after = add_tables(before, {"a.onnx": SIZES})
    left = iter(after.splitlines(keepends=True))
    assert all(line in left for line in before.splitlines(keepends=True))


@given(st.lists(st.text("ab*?[]!-", min_size=1), min_size=1))
def test_a_key_names_one_path(parts: list[str]) -> None:
    name = "/".join(parts)
    key = path_key(name)
    tables = read_models({key: {}}, "[tool.modelperf.models")
    assert tables.own(name) is not None or list(tables.globs_of(name)) == [key]
    assert matches(name, key)
    assert not matches(f"{name}x", key)


@pytest.mark.parametrize(
    "text",
    [
        "[tool]\nmodelperf.strict = true\n",
        "tool.modelperf.strict = true\n",
        '[tool.modelperf]\nmodels."z.onnx".cores = 1\n[z]\n',
        "[tool.a]\nx = 1\n[project]\nn = 1\n[tool.b]\ny = 1\n# no end of line",
    ],
)
def test_tables_are_added_to_any_form_of_the_others(text: str) -> None:
    after = add_tables(text, {"a.onnx": SIZES})
    assert after.startswith(text)
    table = tomllib.loads(after)["tool"]["modelperf"]["models"]["a.onnx"]
    assert table == {"dims": {"seq": 64}}
    assert "# seq=64 in x[1]: a usual length\n" in after


def test_an_empty_line_sets_tables_apart() -> None:
    before = '[tool.modelperf.models."old.onnx"]\n\n[tool.mypy]\nstrict = true\n'
    assert add_tables(before, {"new.onnx": ""}) == (
        '[tool.modelperf.models."old.onnx"]\n\n[tool.modelperf.models."new.onnx"]\n\n'
        "[tool.mypy]\nstrict = true\n"
    )


@pytest.mark.parametrize(
    "text", ["[tool]\nmodelperf = {strict = true}\n", "[[tool]]\nx = 1\n", "tool = 3\n"]
)
def test_a_form_that_has_no_place_for_tables_is_left_to_the_user(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        add_tables(text, {"a.onnx": SIZES})
    assert '[tool.modelperf.models."a.onnx"]\n# seq=64' in str(raised.value)
