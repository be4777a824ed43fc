"""Models that cannot be read or measured: each is in every report, with the reason."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.support.project import STATIC, assert_ended, read_json, write_dense, write_table

REPORTS = (
    "--modelperf-json=run.json",
    "--modelperf-markdown=run.md",
    "--modelperf-html=run.html",
    "--junitxml=run.xml",
)
REASON = "is not a complete ONNX model"


@pytest.fixture
def models(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A model, and one that was cut off."""
    monkeypatch.setenv("COLUMNS", "200")
    cut = write_dense(run.path / "models/cut.onnx")
    cut.write_bytes(cut.read_bytes()[:-20])
    write_dense(run.path / "models/whole.onnx")
    return run


def test_a_run_of_an_unreadable_model_alone_has_reached_its_end(models: pytest.Pytester) -> None:
    result = assert_ended(models.runpytest_inprocess(*STATIC, "models/cut.onnx"), failed=1)
    result.stdout.no_fnmatch_line("*ended early*")


@pytest.mark.parametrize("workers", [[], ["-p", "xdist", "-n", "1"]], ids=["alone", "xdist"])
def test_a_model_that_cannot_be_read_is_in_every_report(
    models: pytest.Pytester, workers: list[str]
) -> None:
    write_table(models, '[tool.modelperf.models."models/*.onnx"]\nbudget = {macs = 1}\n')
    result = models.runpytest_inprocess(*STATIC, *REPORTS, *workers)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["cut.onnx::cases *failed*", "1 over budget, 1 failed.", "FAILED *cut.onnx::cases - *"]
    )
    (line,) = [line for line in result.outlines if line.startswith("FAILED models/cut.onnx")]
    assert line.startswith("FAILED models/cut.onnx::cases - failed: it is not a complete ONNX")
    document = read_json(models.path / "run.json")
    (case,) = [case for case in document["cases"] if case["test"] == "models/cut.onnx::cases"]
    assert case["failure"].startswith(f"models/cut.onnx {REASON}")
    assert (case["verdict"], case["model"]["name"]) == (None, "cut.onnx")
    assert document["counts"]["failed"] == 1
    markdown = (models.path / "run.md").read_text("utf-8")
    assert "1 over budget, 1 failed" in markdown
    assert REASON in markdown
    page = (models.path / "run.html").read_text("utf-8")
    assert "cut.onnx::cases" in page
    assert f"models/cut.onnx {REASON}" in page
    cases = ET.parse(models.path / "run.xml").getroot().iter("testcase")  # noqa: S314  # our own
    (entry,) = [each for each in cases if each.get("name") == "cases"]
    (failure,) = entry.iter("failure")
    assert "not a complete ONNX model" in failure.get("message", "")
    properties = {each.get("name"): each.get("value") for each in entry.iter("property")}
    assert properties["modelperf.verdict"] == "failed"
    assert properties["modelperf.model"] == "cut.onnx"


@pytest.mark.parametrize("call", ["check", "__call__"])
def test_a_model_that_the_fixture_cannot_read_is_a_failed_case(
    models: pytest.Pytester, call: str
) -> None:
    models.makepyfile(
        f"def test_it(modelperf):\n    modelperf.{call}('models/cut.onnx', batch_size=2)\n"
    )
    assert_ended(models.runpytest_inprocess(*STATIC, *REPORTS), failed=1)
    (case,) = read_json(models.path / "run.json")["cases"]
    assert REASON in case["failure"]
    assert case["model"]["name"] == "cut.onnx"


def test_a_case_without_its_inputs_fails_at_its_own_sizes(models: pytest.Pytester) -> None:
    models.makepyfile("""
        import pytest

        @pytest.mark.perf_case(model="models/whole.onnx", batch_size=2)
        @pytest.mark.perf_budget(drift="10%")
        def test_it(): pass
        """)
    assert_ended(models.runpytest_inprocess(*STATIC, *REPORTS), failed=1)
    (case,) = read_json(models.path / "run.json")["cases"]
    assert (case["id"], case["batch_size"]) == ("b2-c1", 2)
    assert "--modelperf-history" in case["failure"]


def test_a_failure_that_its_test_expects_is_shown_as_such(models: pytest.Pytester) -> None:
    models.makepyfile("""
        import pytest

        @pytest.mark.xfail
        def test_it(modelperf):
            modelperf.check("models/cut.onnx")
        """)
    assert_ended(models.runpytest_inprocess(*STATIC, *REPORTS), "1 xfailed.", xfailed=1)


def test_a_file_that_cannot_be_collected_is_named_with_the_reason(models: pytest.Pytester) -> None:
    models.makepyfile(test_broken="import no_such_module")
    write_table(models, '[tool.modelperf.models."linear.onnx"]\n')
    models.runpytest_inprocess(*STATIC, *REPORTS)
    notes = read_json(models.path / "run.json")["notes"]
    assert any(note.startswith("not tested: linear.onnx: linear.onnx has") for note in notes)
    assert any(note.startswith("not tested: test_broken.py: ImportError") for note in notes)
