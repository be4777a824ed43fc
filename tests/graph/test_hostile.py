"""Reading any file ends in a profile or in an error of ours, in little memory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

import pytest_modelperf
from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.profiler.request import profile_model
from tests.graph import hostile
from tests.support.checkout import ROOT
from tests.support.graph_models import parse, zeros
from tests.support.light_models import light_model
from tests.support.onnx_text import INSTALLED

# The memory for reading any small model, and how much more for each byte of it.
_BASE_BYTES = 8_000_000
_BYTES_EACH = 50
# Enough for a hundred times the work: a child that takes longer hangs.
_SECONDS = 300


def _read_in_child(folder: Path) -> dict[str, Mapping[str, object]]:
    """Return the result of each model of a folder, except those that ended the child."""
    names = sorted(path.name for path in folder.iterdir())
    answers: dict[str, Mapping[str, object]] = {}
    first = 0
    while first < len(names):
        read = _run_child(folder, names[first])
        answers.update(read)
        # The child ended at the model after the last one that it printed.
        first += len(read) + 1
    return answers


def _run_child(folder: Path, first: str) -> dict[str, Mapping[str, object]]:
    # The package may be installed elsewhere than these tests are.
    tests, package = ROOT, Path(pytest_modelperf.__file__).parents[1]
    command = [sys.executable, "-m", "tests.graph.hostile", str(folder), first]
    try:
        output = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (tests, package)))},
            cwd=tests,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        ).stdout
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout or b""
    return {answer["name"]: answer for answer in map(json.loads, output.decode().splitlines())}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Mapping[str, object]]:
    """Return the result of each crafted model."""
    folder = tmp_path_factory.mktemp("hostile")
    for number, build in enumerate(hostile.CASES.values()):
        (folder / f"{number:03}").write_bytes(build().SerializeToString())
    answers = _read_in_child(folder)
    numbered = {f"{number:03}": name for number, name in enumerate(hostile.CASES)}
    return {numbered[key]: answer for key, answer in answers.items()}


# Models that no engine could run are refused, and odd but valid ones are profiled.
REFUSED = {
    "fewer parts than outputs", "a weight of 2**40 elements without data",
    "a constant of 2**31 elements with four bytes", "functions that unfold to 2**40 nodes",
    "a tensor name that is not text", "a shape of nothing", "a weight of negative dimensions",
}  # fmt: skip
PROFILED = {
    "an unknown type for a regular expression", "an unknown type for an identity matrix",
    "an unknown type for a label encoder", "a loop of 2**62 trips",
    "functions that unfold to 3**7 nodes", "functions forty deep", "parts by reference",
    "a long vector taken apart", "a sparse weight of 2**40 elements",
}  # fmt: skip


def test_known_cases_are_refused_and_profiled() -> None:
    assert hostile.CASES.keys() >= REFUSED | PROFILED


@pytest.mark.parametrize("name", hostile.CASES)
def test_a_model_made_to_break_its_reader_does_not_and_takes_no_memory(
    name: str, outcomes: Mapping[str, Mapping[str, object]]
) -> None:
    assert name in outcomes, "the process that read it died or hung"
    refused, peak = outcomes[name]["refused"], outcomes[name]["peak"]
    assert refused is None or (isinstance(refused, str) and refused.isprintable())
    assert refused or name not in REFUSED
    assert refused is None or name not in PROFILED
    assert isinstance(peak, int)
    assert peak < _BASE_BYTES + _BYTES_EACH * len(hostile.CASES[name]().SerializeToString())


@pytest.mark.slow
@pytest.mark.skipif(
    INSTALLED < (1, 19), reason="some broken models end the process in an older onnx"
)
def test_mutated_models_give_a_profile_or_an_error_of_ours(tmp_path: Path) -> None:
    """In a child, for what it finds may well be a crash."""
    rng = random.Random(0)  # the same models on every run
    seeds = [build().SerializeToString() for build in hostile.SEEDS]
    count = 700
    for number in range(count):
        (tmp_path / f"{number:04}").write_bytes(hostile.mutate(rng.choice(seeds), rng))

    answers = _read_in_child(tmp_path)

    lost = sorted({f"{n:04}" for n in range(count)} - answers.keys())
    assert not lost, f"reading {lost[0]} in {tmp_path} ended the process"
    messages = [a["refused"] for a in answers.values()]
    assert all(m is None or (isinstance(m, str) and m.isprintable()) for m in messages)
    # Mutations that all are refused, or none, would say nothing.
    assert 0.05 < sum(m is None for m in messages) / count < 0.95


@given(st.integers(0, 2**32), st.sampled_from(["squeezenet", "bvlc_alexnet"]))
@settings(max_examples=80)
def test_a_light_model_with_wrong_bytes_gives_a_profile_or_an_error_of_ours(
    seed: int, name: str
) -> None:
    rng = random.Random(seed)  # drawn by hypothesis
    data = bytearray(light_model(name).read_bytes())
    for _ in range(rng.choice((1, 3, 10))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    try:
        profile = profile_model(bytes(data))
    except ModelPerfError as error:
        assert str(error).isprintable()  # noqa: PT017  # either outcome is fine
        return
    assert profile.cases[0].static.layers


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_cut_model_is_refused(share: float) -> None:
    model = parse(
        "g (float[1, 400] x) => (y) { y = MatMul (x, w) }", {"w": zeros(400, 100)}
    ).SerializeToString()
    with pytest.raises(ModelPerfError, match=r"complete|protobuf|no graph"):
        profile_model(model[: int(len(model) * share)])
