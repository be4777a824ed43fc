"""`--prompt`, `--generate` and `--state` of the command: what they measure and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

from examples.generating.make_decoder import DecoderShape, make_decoder
from tests.support.command import refusal, run
from tests.support.small_models import parse

pytestmark = pytest.mark.slow

QUICK = ("--max-seconds", "0.3")
LENGTHS = ("--prompt", "6", "--generate", "5")
PREFILL, STEP = "b1-c1-prompt6-prefill", "b1-c1-prompt6-generate5-step"
# The names do not show that a becomes b.
RECURRENT = """
    g (float[N,T,4] x, float[N,4] a) => (float[N,T,4] y, float[N,4] b) {
        y = Relu(x)
        m = ReduceMean<keepdims = 0>(y, axes)
        b = Add(a, m)
    }
"""


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("models")
    onnx.save(make_decoder(), path / "decoder.onnx")
    onnx.save(make_decoder(DecoderShape(layers=3)), path / "deeper.onnx")
    onnx.save(parse(RECURRENT, weights={"axes": np.array([1], np.int64)}), path / "recurrent.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        yield path


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_both_phases_are_measured_with_their_layers(engine: str) -> None:
    if engine == "openvino":
        pytest.importorskip("openvino", reason="needs the extra openvino")
    result = run("profile", "decoder.onnx", *LENGTHS, *QUICK, "--engine", engine, "--json", "-")
    assert (result.exit_code, result.err) == (0, "")
    prefill, step = json.loads(result.out)["cases"]
    assert [prefill["id"], step["id"]] == [PREFILL, STEP]
    for case in (prefill, step):
        assert case["outcome"] == "measured"
        assert any(layer["ms"] for layer in case["layers"] if layer["kind"] == "layer")
        assert case["generation"]["cache_bytes_per_token"] == 256
    assert prefill["generation"]["ttft_ms"] == prefill["latency"]["p50_ms"]
    assert step["generation"]["tokens_per_second"] == step["latency"]["items_per_second"]
    assert all(each["first_step"] in range(5) for each in step["raw"])


def test_every_prompt_goes_with_every_number_of_tokens() -> None:
    result = run("profile", "decoder.onnx", "--static", "--prompt", "2,3", "--generate", "4,5")
    for prompt in (2, 3):
        assert f"b1-c1-prompt{prompt}-prefill" in result.out
        for generate in (4, 5):
            assert f"b1-c1-prompt{prompt}-generate{generate}-step" in result.out


def test_a_pair_is_named() -> None:
    plain = run("profile", "recurrent.onnx", *LENGTHS, *QUICK)
    assert plain.exit_code == 2
    assert "--state PAST=PRESENT" in plain.err
    assert "outputs: y [N, T, 4], b [N, 4]" in plain.err
    named = run("profile", "recurrent.onnx", *LENGTHS, *QUICK, "--state", "a=b", "--json", "-")
    assert (named.exit_code, named.err) == (0, "")
    assert [case["outcome"] for case in json.loads(named.out)["cases"]] == ["measured"] * 2


def test_inputs_of_a_file_are_used(folder: Path) -> None:
    np.savez(folder / "ids.npz", input_ids=np.ones((1, 11), np.int64))
    result = run("profile", "decoder.onnx", *LENGTHS, *QUICK, "--input-file", "ids.npz")
    assert (result.exit_code, result.err) == (0, "")
    np.savez(folder / "few.npz", input_ids=np.ones((1, 3), np.int64))
    assert "has 3 tokens along axis 1" in refusal(
        "profile", "decoder.onnx", *LENGTHS, *QUICK, "--input-file", "few.npz"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["decoder.onnx", "--state", "a=b"], "--state is about a generation"),
        (["decoder.onnx", "--prompt", "-1"], "--prompt takes whole numbers of 0 or more"),
        (["decoder.onnx", "--generate", "x"], "--generate takes whole numbers of 0 or more"),
        (["math:sqrt", "--engine", "callable", "--prompt", "3"], "hands on no state"),
    ],
)
def test_senseless_arguments_are_refused(arguments: list[str], message: str) -> None:
    assert message in refusal("profile", *arguments)


def test_two_decoders_are_compared_in_each_phase() -> None:
    result = run("compare", "decoder.onnx", "deeper.onnx", *LENGTHS, *QUICK, "--json", "-")
    assert (result.exit_code, result.err) == (1, "")
    cases = json.loads(result.out)["cases"]
    assert [case["id"] for case in cases] == [PREFILL, STEP]
    for case in cases:
        assert case["rounds"] > 0
        macs = next(m for m in case["metrics"] if m["name"] == "macs")
        assert macs["verdict"] == "regressed"
        assert case["layer_types"]
        # The outputs of one inference on equal inputs: other weights give others.
        assert "logits" in {output["name"] for output in case["outputs"]}


def test_static_counts_of_two_decoders_are_compared_in_each_phase() -> None:
    result = run("compare", "decoder.onnx", "deeper.onnx", *LENGTHS, "--static", "--json", "-")
    assert [case["id"] for case in json.loads(result.out)["cases"]] == [PREFILL, STEP]


def test_a_kept_profile_has_its_phases() -> None:
    place = ("--profile-dir", "kept")
    kept = run("profile", "decoder.onnx", *LENGTHS, *QUICK, "--name", "first", *place)
    assert (kept.exit_code, kept.err) == (0, "")
    shown = run("profiles", "decoder.onnx", "--show", "first", *place)
    assert f"{PREFILL} " in shown.out
    assert "first token ms" in shown.out
    listed = run("profiles", "decoder.onnx", *LENGTHS, *place)
    assert (listed.exit_code, listed.err) == (0, "")
    # One is printed for the counts, one for the kept profile.
    assert listed.out.count(STEP.removeprefix("b1-c1-")) == 2
    assert "kept profiles have their own" in refusal(
        "profiles", "decoder.onnx", "--show", "first", *LENGTHS, *place
    )


def test_kept_prefills_of_two_prompts_are_compared_by_a_sweep() -> None:
    place = ("--profile-dir", "prompts")
    for prompt in ("6", "9"):
        run("profile", "decoder.onnx", "--prompt", prompt, *QUICK, "--name", f"p{prompt}", *place)
    result = run("profiles", "decoder.onnx", "--compare", "p6", "p9", *place)
    assert result.exit_code == 0
    assert "modelperf sweep" in result.out
    assert "--prompt 6,9" in result.out


def test_a_page_has_the_figures_of_both_phases(folder: Path) -> None:
    pytest.importorskip("jinja2", reason="needs the extra report")
    result = run("profile", "decoder.onnx", *LENGTHS, *QUICK, "--html", "page.html")
    assert (result.exit_code, result.err) == (0, "")
    page = (folder / "page.html").read_text("utf-8")
    assert "first token ms" in page
    assert STEP in page
