"""The table of a model from what a program used of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from pytest_modelperf.graph.binding import DeclaredInput
from pytest_modelperf.init.used_sizes import UsedModel, use_sizes, used_lines
from pytest_modelperf.tracing.launch import InferenceSizes, SessionRuns

PLAIN = {
    "intra_op_num_threads": "0",
    "inter_op_num_threads": "0",
    "graph_optimization_level": "ORT_ENABLE_ALL",
    "execution_mode": "ORT_SEQUENTIAL",
    "providers": "CPUExecutionProvider",
}
IMAGE = (DeclaredInput("x", "float32", ("N", 3, None, "w")),)
Shape = tuple[int, ...]


def sized(count: int, shape: Shape, **values: float) -> InferenceSizes:
    return InferenceSizes({"x": shape}, values, count)


def runs(*inferences: InferenceSizes, **options: str) -> SessionRuns:
    return SessionRuns(Path("/m.onnx"), None, 0, {**PLAIN, **options}, inferences)


def used(*sessions: SessionRuns, declared: tuple[DeclaredInput, ...] = IMAGE) -> UsedModel:
    found = use_sizes(declared, sessions, "m.onnx")
    assert found is not None
    return found


def keys(model: UsedModel) -> list[str]:
    """The lines of the table without its comments."""
    return [line for line in used_lines(model, "p").splitlines() if not line.startswith("#")]


def test_each_size_of_an_open_dimension_is_that_of_the_program() -> None:
    assert keys(used(runs(sized(3, (1, 3, 736, 992))))) == ['dims = {"x.2" = 736, w = 992}']


def test_a_batch_is_the_batch_size() -> None:
    assert keys(used(runs(sized(1, (6, 3, 48, 552))))) == [
        "batch_size = 6",
        'dims = {"x.2" = 48, w = 552}',
    ]


def test_several_sizes_are_cases_with_the_most_used_first() -> None:
    found = used(runs(sized(2, (1, 3, 8, 8)), sized(5, (1, 3, 8, 9))))
    assert keys(found) == ['dims = [{"x.2" = 8, w = 9}, {"x.2" = 8, w = 8}]']


def test_the_same_sizes_of_two_sessions_are_counted_together() -> None:
    found = used(runs(sized(2, (1, 3, 8, 8))), runs(sized(5, (1, 3, 8, 8)), execution_mode="y"))
    assert [case.count for case in found.cases] == [7]
    assert found.other_options == 1


def test_batches_and_sizes_that_were_all_combined_are_lists() -> None:
    shapes = [(1, 4), (2, 4), (1, 5), (2, 5)]
    declared = (DeclaredInput("x", "int64", ("N", "seq")),)
    found = used(runs(*(sized(1, shape) for shape in shapes)), declared=declared)
    assert sorted(keys(found)) == ["batch_size = [2, 1]", "dims = {seq = [5, 4]}"]
    assert not found.left


def test_a_table_has_no_case_that_the_program_did_not_run() -> None:
    declared = (DeclaredInput("x", "int64", ("N", "seq")),)
    found = used(runs(sized(9, (6, 4)), sized(2, (6, 5)), sized(3, (1, 7))), declared=declared)
    assert keys(found) == ["batch_size = 6", "dims = {seq = [4, 5]}"]
    assert "# 3 with x: 1x7 (not in this table)\n" in used_lines(found, "p")


def test_the_most_used_of_many_sizes_are_cases_and_the_others_are_counted() -> None:
    declared = (DeclaredInput("x", "int64", ("N", "seq")),)
    found = used(runs(*(sized(100 - n, (1, n)) for n in range(1, 21))), declared=declared)
    assert keys(found) == ["dims = {seq = [1, 2, 3, 4]}"]
    lines = used_lines(found, "p").splitlines()
    assert lines[0] == f"# {found.count:,} inferences of: p"
    assert lines[9] == "# 1,026 inferences with 12 other sizes (not in this table)"


def test_a_size_that_follows_from_others_is_left_out() -> None:
    declared = (
        DeclaredInput("x", "int64", ("N", "new")),
        DeclaredInput("mask", "int64", ("N", "new + 1")),
    )
    shapes: Mapping[str, Shape] = {"x": (1, 4), "mask": (1, 5)}
    found = used(runs(InferenceSizes(shapes, {}, 1)), declared=declared)
    assert keys(found) == ["dims = {new = 4}"]


def test_inputs_that_contradict_their_names_are_given_whole() -> None:
    declared = (DeclaredInput("x", "int64", ("n", "s")), DeclaredInput("y", "int64", ("n", "s")))
    shapes: Mapping[str, Shape] = {"x": (1, 4), "y": (1, 5)}
    found = used(runs(InferenceSizes(shapes, {}, 1)), declared=declared)
    assert keys(found) == ['inputs = ["x:int64:1x4", "y:int64:1x5"]']


@pytest.mark.parametrize(
    ("values", "lines"), [((16000, 16000), ['inputs = ["sr:int64::16000"]']), ((16000, 8000), [])]
)
def test_a_number_is_kept_if_it_was_always_the_same(
    values: tuple[int, ...], lines: list[str]
) -> None:
    declared = (DeclaredInput("x", "float32", (1, 576)), DeclaredInput("sr", "int64", ()))
    shapes: Mapping[str, Shape] = {"x": (1, 576), "sr": ()}
    found = used(
        runs(*(InferenceSizes(shapes, {"sr": value}, 1) for value in values)), declared=declared
    )
    assert keys(found) == lines


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"intra_op_num_threads": "2"}, "cores = 2"),
        (
            {"graph_optimization_level": "ORT_ENABLE_BASIC"},
            'engine_options = {graph_optimization_level = "basic"}',
        ),
        (
            {"graph_optimization_level": "ORT_DISABLE_ALL"},
            'engine_options = {graph_optimization_level = "none"}',
        ),
        (
            {"execution_mode": "ORT_PARALLEL", "inter_op_num_threads": "3"},
            'engine_options = {execution_mode = "parallel", inter_op_num_threads = "3"}',
        ),
        (
            {"providers": "CUDAExecutionProvider, CPUExecutionProvider"},
            'engine_options = {provider = "CUDA,CPU"}',
        ),
        ({"enable_cpu_mem_arena": "False"}, 'engine_options = {enable_cpu_mem_arena = "false"}'),
        (
            {"session.set_denormal_as_zero": "1"},
            'engine_options = {"session.set_denormal_as_zero" = "1"}',
        ),
        ({"session.force_spinning_stop": "1", "CPUExecutionProvider.a": "b"}, None),
    ],
)
def test_options_of_a_session_are_settings(options: dict[str, str], line: str | None) -> None:
    declared = (DeclaredInput("x", "float32", (1, 4)),)
    found = used(runs(sized(1, (1, 4)), **options), declared=declared)
    assert keys(found) == ([] if line is None else [line])


def test_the_options_are_those_of_the_session_that_ran_most() -> None:
    few, many = runs(sized(1, (1, 3, 8, 8))), runs(sized(2, (1, 3, 8, 8)), intra_op_num_threads="4")
    assert used(few, many).cores == 4


def test_shapes_that_are_unknown_make_no_table() -> None:
    assert use_sizes(IMAGE, [runs(InferenceSizes(None, {}, 3))], "m.onnx") is None
