"""The needs of the test explorers of editors: they list the tests, and run some by their ids.

They make a tree of the ids and paths, with a node of its own for a test that has cases, and know
the result of a test by its id, after the absolute path of its file.
"""

from __future__ import annotations

import pytest

from tests.support.project import write_dense

STATIC = ("--modelperf", "--modelperf-static-only")


@pytest.fixture
def project(run: pytest.Pytester) -> pytest.Pytester:
    """A model of a table, and a test with cases in a module and in a class."""
    write_dense(run.path / "models" / "dense.onnx")
    run.makepyprojecttoml("""
        [tool.modelperf.models."models/*.onnx"]
        batch_size = [1, 4]
        cores = 1
        """)
    run.makepyfile("""
        import pytest

        MARK = pytest.mark.perf_case(model="models/dense.onnx", batch_size=[1, 2], cores=1)

        @MARK
        def test_marked(modelperf): pass

        class TestIt:
            @MARK
            @pytest.mark.perf_budget(macs=1)
            def test_over(self): pass
        """)
    return run


def test_each_item_has_the_place_of_its_file_and_an_id_of_its_own(project: pytest.Pytester) -> None:
    items, _ = project.inline_genitems(*STATIC, ".")
    ids = [item.nodeid for item in items]
    assert len(set(ids)) == len(ids) == 6
    for item in items:
        (file,) = (each for each in item.listchain() if isinstance(each, pytest.File))
        assert item.path == file.path
        assert item.path.is_file()
        # The absolute id of an explorer is the path, and the rest of this one.
        path, *names = item.nodeid.split("::")
        assert project.path / path == item.path
        assert names[-1] == item.name
        # A line, counted from 0, or None if there is no line to go to.
        assert item.location[1] is None or item.location[1] >= 0


def test_a_case_of_a_model_belongs_to_its_file_and_is_not_a_parameter(
    project: pytest.Pytester,
) -> None:
    items, _ = project.inline_genitems(*STATIC, "models")
    assert [item.name for item in items] == ["b1-c1", "b4-c1"]
    for item in items:
        # An explorer cuts the id of a test with parameters at `.py`.
        assert not hasattr(item, "callspec")
        assert isinstance(item.parent, pytest.File)
        # A model has no lines, so an editor opens it at its beginning.
        assert item.location[1] == 0


def test_a_case_of_a_marker_is_a_parameter_of_its_function(project: pytest.Pytester) -> None:
    items, _ = project.inline_genitems(*STATIC, "--ignore=models", ".")
    assert len(items) == 4
    for item in items:
        assert isinstance(item, pytest.Function)
        assert hasattr(item, "callspec")
        assert item.name in {f"{item.originalname}[b1-c1]", f"{item.originalname}[b2-c1]"}
        assert item.nodeid.partition(".py::")[2].endswith(item.name)


def test_a_test_run_by_an_absolute_id_is_reported_by_the_listed_one(
    project: pytest.Pytester,
) -> None:
    items, _ = project.inline_genitems(*STATIC, ".")
    chosen = [item for item in items if item.name in {"b4-c1", "test_over[b1-c1]"}]
    named = ["::".join([str(i.path), *i.nodeid.split("::")[1:]]) for i in chosen]
    result = project.inline_run(*STATIC, f"--rootdir={project.path}", *named)
    calls = {each.nodeid: each for each in result.getreports("pytest_runtest_logreport")}
    assert set(calls) == {item.nodeid for item in chosen}
    passed, skipped, failed = result.listoutcomes()
    assert [report.nodeid for report in passed] == [i.nodeid for i in chosen if "::b4" in i.nodeid]
    assert not skipped
    assert [report.nodeid for report in failed] == [i.nodeid for i in chosen if "over" in i.nodeid]
    # The text next to a failed test.
    assert failed[0].longreprtext.startswith("over budget: MACs")
