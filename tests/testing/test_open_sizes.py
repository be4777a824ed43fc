"""A run shows sizes that work for a model that leaves them open, ready to paste."""

from __future__ import annotations

import pytest

from tests.support.project import STATIC, write_table

# The model is collected alone in some of these, and the other one of the folder has no open sizes.
MODEL = "linear.onnx"


def test_a_pasted_table_runs(run: pytest.Pytester) -> None:
    failed = run.runpytest_inprocess(*STATIC, MODEL)
    failed.assert_outcomes(errors=1)
    lines = [line.strip() for line in failed.outlines if line.startswith("  ")]
    table = "\n".join(line for line in lines if line.startswith(("[tool", "dims", "inputs")))
    assert table == '[tool.modelperf.models."linear.onnx"]\ndims = {seq = 64}'
    write_table(run, table)
    run.runpytest_inprocess(*STATIC, MODEL).assert_outcomes(passed=1)


def test_a_model_that_has_a_table_is_shown_its_keys_alone(run: pytest.Pytester) -> None:
    write_table(run, '[tool.modelperf.models."linear.onnx"]\nbatch_size = 2')
    failed = run.runpytest_inprocess(*STATIC, MODEL)
    failed.stdout.fnmatch_lines(["  dims = {seq = 64}"])
    failed.stdout.no_fnmatch_line("  [[]tool.*")


@pytest.mark.parametrize(
    "test",
    [
        "def test_it(modelperf):\n    modelperf.check('linear.onnx'{})",
        "import pytest\n@pytest.mark.perf_case('linear.onnx'{})\ndef test_it():\n    pass",
    ],
)
def test_pasted_arguments_run(run: pytest.Pytester, test: str) -> None:
    run.makepyfile(test.format(""))
    failed = run.runpytest_inprocess(*STATIC)
    assert failed.ret != pytest.ExitCode.OK
    (shown,) = {line.removeprefix("E").strip() for line in failed.outlines if '={"' in line}
    run.makepyfile(test_pasted=test.format(f", {shown}"))
    run.runpytest_inprocess(*STATIC, "test_pasted.py").assert_outcomes(passed=1)


def test_an_error_says_where_the_sizes_come_from(run: pytest.Pytester) -> None:
    failed = run.runpytest_inprocess(*STATIC, MODEL)
    failed.stdout.fnmatch_lines(["seq=64 in x[[]1]: a guess: a usual size"])
