"""Which sets of options are tried: what the baseline has is left out, and threads fit the cores."""

from __future__ import annotations

import pytest

from pytest_modelperf.errors import UsageError
from pytest_modelperf.tuning.candidates import check_given, combined_sets, named_sets, usual_sets
from pytest_modelperf.tuning.report import find_warnings
from tests.support.tunings import option_sets


def names(engine: str, given: dict[str, str], cores: int) -> list[str]:
    return [each.name for each in usual_sets(engine, given, cores)]


def test_one_core_has_no_options_about_threads() -> None:
    assert names("onnxruntime", {}, 1) == [
        "graph_optimization_level=extended", "graph_optimization_level=basic",
        "graph_optimization_level=none", "enable_cpu_mem_arena=0", "enable_mem_pattern=0",
        "optimization.disable_specified_optimizers=NchwcTransformer",
        "session.set_denormal_as_zero=1",
    ]  # fmt: skip


def test_threads_between_and_within_operators_do_not_exceed_the_cores() -> None:
    found = usual_sets("onnxruntime", {}, 6)
    threads = [
        int(each.options["intra_op_num_threads"])
        * int(each.options.get("inter_op_num_threads", "1"))
        for each in found
        if "intra_op_num_threads" in each.options
    ]
    assert threads == [3, 1, 6, 4]
    assert "session.intra_op.allow_spinning=0" in [each.name for each in found]


@pytest.mark.parametrize("mode", ["parallel", "ORT_PARALLEL"])
def test_threads_between_operators_of_the_baseline_count_too(mode: str) -> None:
    given = {"execution_mode": mode, "inter_op_num_threads": "2", "intra_op_num_threads": "1"}
    found = names("onnxruntime", given, 4)
    assert found[:2] == ["intra_op_num_threads=2", "execution_mode=sequential"]
    assert not [each for each in found[2:] if "threads=" in each]


def test_a_value_that_the_baseline_has_is_left_out_and_its_default_is_tried() -> None:
    given = {
        "graph_optimization_level": "none", "session.intra_op.allow_spinning": "0",
        "intra_op_num_threads": "1", "enable_mem_pattern": "false", "execution_mode": "parallel",
    }  # fmt: skip
    found = names("onnxruntime", given, 2)
    assert {
        "graph_optimization_level=all", "session.intra_op.allow_spinning=1",
        "intra_op_num_threads=2", "enable_mem_pattern=1", "execution_mode=sequential",
    } <= set(found)  # fmt: skip
    assert not {f"{key}={value}" for key, value in given.items()} & set(found)
    assert "enable_mem_pattern=0" not in found


def test_the_options_of_a_provider_are_tried_if_it_is_the_first() -> None:
    assert "provider.prefer_nhwc=1" in names("onnxruntime", {"provider": "CUDA,CPU"}, 1)
    assert "provider.trt_fp16_enable=1" in names(
        "onnxruntime", {"provider": "TensorrtExecutionProvider"}, 1
    )
    assert not [each for each in names("onnxruntime", {}, 1) if each.startswith("provider")]


def test_the_provider_of_openvino_has_threads_and_hints_of_its_own() -> None:
    found = names("onnxruntime", {"provider": "OpenVINO"}, 4)
    threads = [each for each in found if "threads=" in each and "parallel" not in each]
    assert threads == ["provider.num_of_threads=2", "provider.num_of_threads=1"]
    hint = 'provider.load_config={"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}}'
    assert hint in found
    assert "provider.num_streams=2" in found
    assert "was not measured" in next(find_warnings({"provider.load_config": "{}"}))


def test_options_of_the_provider_come_before_those_that_only_the_cpu_has() -> None:
    found = names("onnxruntime", {"provider": "CUDA"}, 1)
    assert found[0] == "provider.cudnn_conv_algo_search=HEURISTIC"
    assert "provider.use_tf32=0" in found


def test_denormals_need_a_process_alone_or_together() -> None:
    alone = [each for each in usual_sets("onnxruntime", {}, 1) if each.needs_process]
    assert [each.name for each in alone] == ["session.set_denormal_as_zero=1"]
    (both,) = combined_sets([*alone, *option_sets("a=1")])
    assert both.needs_process


def test_openvino_has_options_of_its_own() -> None:
    found = names("openvino", {"INFERENCE_PRECISION_HINT": "f32"}, 2)
    assert {"INFERENCE_NUM_THREADS=1", "NUM_STREAMS=2", "INFERENCE_PRECISION_HINT=bf16"} <= set(
        found
    )
    assert "INFERENCE_PRECISION_HINT=f32" not in found


def test_helpful_options_are_combined_as_a_whole_and_in_pairs_of_the_best() -> None:
    found = combined_sets(option_sets("a=1", "b=1", "a=2", "c=1", "d=1"))
    assert [each.name for each in found] == [
        "a=1, b=1, c=1, d=1",
        "a=1, b=1",
        "a=1, c=1",
        "b=1, c=1",
    ]
    assert combined_sets(option_sets("a=1", "a=2")) == ()


def test_named_values_are_tried_alone() -> None:
    found = named_sets({"a": ("1", "2"), "b": ("on",)}, {"a": "2"})
    assert [each.name for each in found] == ["a=1", "b=on"]
    with pytest.raises(UsageError, match="only what the baseline already has"):
        named_sets({"a": ("2",)}, {"a": "2"})


def test_the_options_of_an_unknown_engine_have_to_be_named() -> None:
    with pytest.raises(UsageError, match="name some to try, as in --try KEY=VALUE"):
        usual_sets("abacus", {}, 1)


def test_spinning_threads_of_the_side_that_waits_are_refused() -> None:
    with pytest.raises(UsageError, match="the threads of the side that waits"):
        check_given("onnxruntime", {"session.force_spinning_stop": "0"})
    check_given("onnxruntime", {"session.force_spinning_stop": "1"})
    check_given("openvino", {"session.force_spinning_stop": "0"})
