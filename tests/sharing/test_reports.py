"""A shared model has the same answer on a terminal, in its README and as JSON."""

from __future__ import annotations

import json

import msgspec
import pytest

from pytest_modelperf.comparing import since_recorded
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.sharing.making import describe_likeness, files_of, render_readme, share_report
from pytest_modelperf.sharing.records import SHARE, Likeness, SharedInput
from tests.support.shares import make_likening, make_share


@pytest.mark.parametrize(
    ("low", "high", "has_same_plan", "likeness"),
    [
        (0.98, 1.02, True, Likeness.SAME),
        (0.995, 1.005, None, Likeness.SAME),
        (0.995, 1.005, False, Likeness.OTHER_PLAN),
        (0.979, 1.001, True, Likeness.UNDECIDED),
        (1.001, 1.021, True, Likeness.UNDECIDED),
        (0.9, 1.1, None, Likeness.UNDECIDED),
        (None, None, True, Likeness.UNDECIDED),
        (1.021, 1.05, True, Likeness.OTHER_TIME),
        (0.9, 0.979, None, Likeness.OTHER_TIME),
    ],
)
def test_only_a_whole_interval_within_the_limit_and_no_other_plan_is_likeness(
    low: float | None,
    high: float | None,
    has_same_plan: bool | None,  # noqa: FBT001  # a parameter of pytest
    likeness: Likeness,
) -> None:
    assert make_likening(low, high, has_same_plan=has_same_plan).likeness is likeness


@pytest.mark.parametrize(
    ("low", "high", "difference", "sentence"),
    [
        (0.995, 1.012, None, "The shared model runs like the original one: it takes 1.003 times"),
        (0.9, 1.1, None, "takes as long as the original one within 2 % is not decided: it takes"),
        (
            1.03,
            1.1,
            None,
            "does not run like the original one: it takes 1.003 times as long (1.030",
        ),
        (0.995, 1.012, "it runs 1 Relu less", "makes another plan of it, for it runs 1 Relu less"),
    ],
)
def test_each_answer_is_one_sentence_in_every_place(
    low: float, high: float, difference: str | None, sentence: str
) -> None:
    likening = make_likening(low, high, has_same_plan=difference is None, difference=difference)
    share = make_share(likening=likening)
    assert sentence in describe_likeness(likening)
    assert describe_likeness(likening) in render_readme(share)
    assert sentence in render_report(share_report(share, "folder"), TextStyle())


def test_the_readme_says_what_it_is_how_to_run_it_and_where_it_was_measured() -> None:
    readme = render_readme(make_share(doubts=("a sparse weight has its values elsewhere",)))
    for part in (
        "<code>ranking.onnx</code>", "95 nodes", "exported by pytorch 2.9", "ai.onnx 17",
        "pip install numpy onnxruntime==1.32.0\npython run.py", "2.766 MiB",
        "2.000 ms (1.991 … 2.009 ms)", "batch size 1, 2 cores, seq 64", "Example CPU",
        "Python 3.11.7", "fit to measure", "| ids | int64 | 1x64 |", "a sparse weight has",
        "the same kernels, connected alike",
    ):  # fmt: skip
        assert part in readme


def test_the_readme_installs_the_build_that_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    builds = {"onnxruntime-gpu": "1.32.0"}
    monkeypatch.setattr(since_recorded, "installed_builds", lambda _: builds)
    assert "pip install numpy onnxruntime-gpu==1.32.0\n" in render_readme(make_share())


def test_markup_in_names_stays_text() -> None:
    name = "[a](http://x)|<b>"
    share = make_share(inputs=(SharedInput(name=name, dtype="int64", shape=()),), model=name)
    readme = render_readme(share)
    assert name not in readme
    assert "<b>" not in readme


def test_an_anonymous_model_has_no_name_in_its_files() -> None:
    share = make_share(model=None, producer=None)
    assert b"ranking" not in b"".join(files_of(share).values())
    assert "numbers in place of their names" in render_readme(share)
    assert "numbers in place of their names" not in render_readme(make_share())


def test_the_document_is_read_back_by_its_type() -> None:
    share = make_share()
    document = msgspec.json.decode(SHARE.dump(share), type=SHARE.json_type)
    assert document.likening.likeness is Likeness.SAME
    assert document.likening.interval == (0.995, 1.012)
    assert document.files == {"model.onnx": 5, "run.py": 7, "run.json": 2}
    assert document.dims == {"seq": 64}
    assert (
        json.loads(SHARE.dump(make_share(likening=make_likening(None, None))))["likening"][
            "interval"
        ]
        is None
    )


@pytest.mark.parametrize("width", [40, 80, 160])
def test_a_report_fits_its_width(width: int) -> None:
    text = render_report(share_report(make_share(), "folder"), TextStyle(width))
    assert max(map(len, text.splitlines())) <= width
