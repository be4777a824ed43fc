"""The options that a station gets from the run that starts it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pytest_modelperf.testing.program_run import id_below, options_of


def test_options_of_a_conftest_are_kept_and_others_left_out(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pathlib

        def pytest_addoption(parser):
            parser.addoption("--rows", type=int)
            parser.addoption("--folder", type=pathlib.Path)
        """)
    options = options_of(pytester.parseconfig("--rows=3", "--folder=/tmp", "-v"))
    assert (options["rows"], options["verbose"]) == (3, 1)
    assert "folder" not in options
    assert msgspec.json.decode(msgspec.json.encode(options)) == options


def test_the_id_of_a_test_is_relative_to_the_top_folder(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("inner")
    (folder / "test_a.py").write_text(
        "import pytest\n\n"
        "class TestA:\n"
        "    @pytest.mark.parametrize('x', ['b::c'])\n"
        "    def test_x(self, x): pass\n",
        "utf-8",
    )
    (item,) = pytester.inline_genitems(folder)[0]
    # pytest-xdist has it so with --dist loadgroup.
    item._nodeid = f"{item.nodeid}@group"  # type: ignore[attr-defined]  # it is private
    assert id_below(item, Path(pytester.path)) == "inner/test_a.py::TestA::test_x[b::c]"
