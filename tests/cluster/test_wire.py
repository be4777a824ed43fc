"""Records as JSON: all their values come back."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.comparing.gates import Gate
from pytest_modelperf.comparing.records import Metric, Verdict
from pytest_modelperf.errors import ClusterError
from pytest_modelperf.profiler.inputs.given import GivenInputs
from pytest_modelperf.profiler.measurements import Progress


@given(st.floats(allow_nan=False), st.none() | st.floats(allow_nan=False), st.text())
def test_a_record_comes_back(before: float, after: float | None, name: str) -> None:
    metric = Metric(name, before, after, Verdict.INCONCLUSIVE, interval=(before, math.inf))
    assert from_text(to_text(metric), Metric) == metric


def test_default_rules_come_back() -> None:
    assert from_text(to_text(Gate()), Gate) == Gate()


def test_the_text_is_json_and_holds_numbers_of_numpy() -> None:
    progress = Progress(
        case_id="b1-c1", case_number=1, cases=1, step="timing", estimate_ns=np.float64(2.5)
    )
    assert json.loads(to_text(progress))["estimate_ns"] == 2.5
    assert from_text(to_text(progress), Progress) == progress


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no JSON", ": Expecting value"),
        ('{"case_id": 7}', ", case_id: expected str, got int"),
        ("[" * 100_000, ": it nests too deep"),
    ],
    ids=["text", "type", "deep"],
)
def test_an_answer_that_cannot_be_read_is_one_error(text: str, problem: str) -> None:
    with pytest.raises(ClusterError) as raised:
        from_text(text, Progress)
    assert f"sent no Progress that can be read{problem}" in str(raised.value)
    assert "Install the same version of pytest-modelperf everywhere." in str(raised.value)


@pytest.mark.parametrize("data", ["", "UEsDBA==", "no base64", "k05VTVBZAQB2AHt9"])
def test_an_array_that_is_cut_or_another_file_is_one_error(data: str) -> None:
    with pytest.raises(ClusterError, match="a machine of the cluster sent no GivenInputs"):
        from_text(json.dumps({"source": "x.npz", "arrays": {"x": data}}), GivenInputs)


def test_texts_come_back_also_those_that_are_bytes() -> None:
    texts = np.array([["ä", "ö".encode()], ["", b"x"]], dtype=object)
    sent = to_text(GivenInputs("here", {"x": texts}))
    found = from_text(sent, GivenInputs).arrays["x"]
    assert found.tolist() == [["ä", "ö"], ["", "x"]]


def test_an_array_that_is_not_text_is_one_error() -> None:
    with pytest.raises(ClusterError, match="expected an array in base64, got int"):
        from_text('{"source": "x.npz", "arrays": {"x": 7}}', GivenInputs)


def test_an_object_without_a_json_form_is_not_a_record() -> None:
    with pytest.raises(TypeError, match="a complex cannot be written as JSON"):
        to_text(1j)
