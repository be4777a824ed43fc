"""The page of a history: what its scripts are given, and what it says without them."""

from __future__ import annotations

import datetime as dt
import json
import math
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_modelperf.history.page_data import LOG_UNIT, history_data
from pytest_modelperf.history.records import INTERVAL_QUANTILE, History, Shift, Step, Tag
from pytest_modelperf.history.report import history_report
from pytest_modelperf.history.repository import find_commit_url, find_links, find_run_url
from pytest_modelperf.report.html.render import dump_data, pack, render_page
from pytest_modelperf.report.model import Link, Tone
from pytest_modelperf.text.version import page_url
from tests.history.lines import make_line
from tests.history.test_command import write_lines
from tests.support.command import refusal, run
from tests.support.histories import ERROR, FIRST_DAY, REASON, commit_of, make_case, make_history
from tests.support.markup import EVIL, Markup, unpacked
from tests.support.repository import git, needs_git

# The size for 30 cases with 1,000 points each.
MAX_BYTES = 300_000
TAG = Tag("v1.0", commit_of(1), FIRST_DAY)


def shared_of(history: History) -> Any:  # noqa: ANN401  # whatever JSON can hold
    """Return the data that a browser reads."""
    return json.loads(dump_data(history_data(history)))["history"]


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def text_of(history: History) -> str:
    return Markup(render_page(history_report(history))).text


# -- what the scripts are given


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=20))
def test_every_point_can_be_read_again(levels: list[float]) -> None:
    case = make_case(levels, steps=())
    shared = shared_of(make_history(case))
    (entry,) = shared["cases"]
    assert entry["count"] == len(levels)
    assert list(accumulate(numbers(entry["dates"]))) == [
        int(point.date.timestamp()) for point in case.points
    ]
    found = [level * LOG_UNIT for level in numbers(entry["levels"])]
    assert found == pytest.approx([level - levels[0] for level in levels], abs=LOG_UNIT)
    commits = [shared["commits"][at] for at in accumulate(numbers(entry["commits"]))]
    assert commits == [point.commit for point in case.points]
    assert [shared["verdicts"][at] for at in numbers(entry["verdicts"])] == ["passed"] * len(levels)


def test_intervals_are_those_of_the_other_documents() -> None:
    (entry,) = shared_of(make_history(make_case()))["cases"]
    first, *others = (width * LOG_UNIT for width in numbers(entry["widths"]))
    # The first point is what the others are compared with.
    assert first == 0
    width = INTERVAL_QUANTILE * math.hypot(ERROR, ERROR)
    assert others == pytest.approx([width] * 3, abs=LOG_UNIT)


def test_steps_baselines_and_reasons_are_at_their_points() -> None:
    shared = shared_of(make_history(make_case()))
    (entry,) = shared["cases"]
    (step,) = entry["steps"]
    assert (step["before"], step["after"]) == (1, 2)
    assert step["log"] * LOG_UNIT == pytest.approx(0.1)
    low, high = (100 * change for change in Shift(0.1, ERROR).bounds(INTERVAL_QUANTILE))
    assert step["text"] == "+10.5 %"
    assert step["range"] == f"{low:+.1f} … {high:+.1f} %"
    assert list(accumulate(numbers(entry["baselines"]))) == [0, 0, 1, 1]
    assert {at: [shared["reasons"][each] for each in indices]
            for at, indices in entry["reasons"].items()} == {"2": [REASON], "3": []}  # fmt: skip


def test_reasons_of_several_runs_in_a_row_are_shown_once() -> None:
    case = make_case([0.0] * 6, steps=())
    by_run = ((), (REASON,), (REASON,), (), (REASON,), (REASON, "b"))
    points = tuple(
        replace(point, reasons=reasons) for point, reasons in zip(case.points, by_run, strict=True)
    )
    (entry,) = shared_of(make_history(replace(case, points=points)))["cases"]
    assert entry["reasons"] == {"1": [0], "3": [], "4": [0], "5": [0, 1]}


@pytest.mark.parametrize(
    ("address", "is_link"),
    [
        ("https://ci.example.org/runs/7?a=1", True),
        ("HTTP://ci.example.org/runs/7", True),
        ("javascript:alert(1)", False),
        ("file:///etc/passwd", False),
        ("https://ci.example.org/a b", False),
        ("https://ci.example.org/\u202e", False),
        (f"https://ci.example.org/{'a' * 3000}", False),
    ],
    ids=["https", "http", "script", "file", "blank", "direction", "long"],
)
def test_a_step_leads_to_the_page_of_its_run_if_that_is_on_the_web(
    address: str, *, is_link: bool
) -> None:
    """Lines of a history may have been written by anybody."""
    history = make_history(make_case(run_url=address))
    shared = shared_of(history)
    assert shared["runs"] == ([address] if is_link else [])
    assert shared["cases"][0].get("runs") == ("0,0,0,0" if is_link else None)
    page = Markup(render_page(history_report(history)))
    tags = [dict(attributes) for tag, attributes in page.tags if tag == "a"]
    links = {tag["href"] for tag in tags if "target" in tag} - {page_url("html-report")}
    assert links == ({address} if is_link else set())
    assert {tag["rel"] for tag in tags if "target" in tag} <= {"noopener noreferrer"}


@pytest.mark.parametrize(
    ("environment", "address"),
    [
        (
            {
                "GITHUB_SERVER_URL": "https://github.com",
                "GITHUB_REPOSITORY": "acme/models",
                "GITHUB_RUN_ID": "77",
            },
            "https://github.com/acme/models/actions/runs/77",
        ),
        ({"GITHUB_SERVER_URL": "https://github.com", "GITHUB_RUN_ID": "77"}, None),
        ({"CI_JOB_URL": "https://gitlab.com/a/b/-/jobs/5"}, "https://gitlab.com/a/b/-/jobs/5"),
        ({"BUILD_URL": "http://jenkins/job/a/5/"}, "http://jenkins/job/a/5/"),
        ({"BUILD_URL": "a build"}, None),
        ({}, None),
    ],
)
def test_services_give_the_page_of_a_run(environment: dict[str, str], address: str | None) -> None:
    assert find_run_url(environment) == address


@pytest.mark.parametrize(
    ("environment", "link"),
    [
        (
            {
                "GITHUB_SERVER_URL": "https://github.com",
                "GITHUB_REPOSITORY": "acme/models",
                "GITHUB_REF": "refs/pull/12/merge",
            },
            Link("pull request 12", "https://github.com/acme/models/pull/12"),
        ),
        (
            {"CI_MERGE_REQUEST_PROJECT_URL": "https://gitlab.com/a/b", "CI_MERGE_REQUEST_IID": "5"},
            Link("merge request 5", "https://gitlab.com/a/b/-/merge_requests/5"),
        ),
    ],
)
def test_the_links_of_a_run_lead_to_its_request(
    environment: dict[str, str], link: Link, tmp_path: Path
) -> None:
    assert find_links(tmp_path, environment) == (link,)
    assert find_links(tmp_path, {"GITHUB_REF": "refs/heads/main"}) == ()


def test_unknown_facts_are_shown_as_unknown() -> None:
    case = make_case(engine=None)
    points = (replace(case.points[0], commit=None, baseline=None), *case.points[1:])
    shared = shared_of(make_history(replace(case, points=points, first=points[0])))
    (entry,) = shared["cases"]
    assert entry["since_tag"] is None
    assert entry["engine"] == ""
    assert list(accumulate(numbers(entry["commits"])))[:2] == [-1, 0]
    assert list(accumulate(numbers(entry["baselines"])))[:2] == [-1, 0]


def test_the_data_of_30_000_points_is_small() -> None:
    levels = [math.sin(index**2) / 100 for index in range(1_030)]
    cases = [make_case(levels[at : at + 1_000], steps=(), case=f"b{at}-c1") for at in range(30)]
    assert len(pack(dump_data(history_data(make_history(*cases))))) < MAX_BYTES


# -- what is there without scripts


def test_the_page_has_the_sentences_of_the_terminal() -> None:
    slower = make_case(earlier_points=7)
    slower = replace(slower, tagged=slower.points[1], since_tag=slower.since_first)
    same = make_case([0.0] * 3, steps=(), model="other+", engine="openvino")
    made = dt.datetime(2026, 5, 6, 7, 8, tzinfo=dt.timezone.utc)
    history = replace(make_history(slower, same, tag=TAG), notes=("line 3 skipped",))
    text = Markup(render_page(history_report(history, made))).text
    for sentence in (
        "History of latency p50 1 step in 1 of 2 cases",
        "7 points of 2 cases of 2 models, from 2026-01-01 to 2026-01-04",
        "models/encoder.onnx b1-c1 on linux-x86_64-2c: +10.5 % (+9.9 … +11.1 %) between "
        "000000002 (2026-01-02) and 000000003 (2026-01-03), whose verdict was regressed: " + REASON,
        "model case history points since change steps since v1.0 machine",
        "models/encoder.onnx b1-c1 ▁▁██ 4 2026-01-01 +10.5 % (+9.7 … +11.3 %) 1 +10.5 % ",
        "other b1-c1 openvino ▅▅▅ 3 2026-01-01 +0.0 % (\N{MINUS SIGN}0.7 … +0.7 %) 0 - linux-x86",
        "line 3 skipped",
        "earlier points are left out: 7",
        "last tag v1.0",
        "2026-05-06 07:08 UTC",
    ):
        assert sentence in text


def test_a_history_without_steps_or_points_says_so() -> None:
    assert "no steps" in text_of(make_history(make_case(steps=())))
    assert "no point has a latency p50" in text_of(make_history())


def test_a_page_of_curves_carries_no_library_of_charts() -> None:
    page = render_page(history_report(make_history(make_case())))
    assert 'id="plotly"' not in page.split("<script", 1)[0]
    assert not any(dict(attributes).get("id") == "plotly" for _, attributes in Markup(page).tags)
    assert len(page) < 200_000


# -- names


def named(name: str) -> History:
    """A history in which everything that comes from a line has that name."""
    case = make_case(model=name, machine=name, case=name, engine=name, reasons=(name,))
    points = tuple(
        replace(point, commit=name, baseline=name, verdict=name) for point in case.points
    )
    steps = (Step(points[1], points[2], Shift(0.1, ERROR)),)
    case = replace(case, points=points, first=points[0], steps=steps)
    made = make_history(case, tag=replace(TAG, name=name))
    return replace(made, notes=(name,))


@settings(max_examples=10)
@given(st.text(min_size=1, max_size=30))
@example(EVIL)
@example("{% raw %}{{ overview }}{# ")
def test_no_name_becomes_a_part_of_a_page(name: str) -> None:
    assert _tags_without_heads(named(name)) == _tags_without_heads(named("a"))


def _tags_without_heads(history: History) -> list[tuple[str, dict[str, str | None]]]:
    """The tags, but not the head of a column in each of its cells, which may be a name."""
    return [
        (tag, {key: value for key, value in attributes if key != "data-title"})
        for tag, attributes in Markup(render_page(history_report(history))).tags
    ]


def test_a_name_is_shown_unchanged_and_obeyed_by_nothing() -> None:
    page = render_page(history_report(named(EVIL)))
    assert EVIL not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert json.loads(unpacked(page, "data"))["history"]["reasons"] == [EVIL]


# -- the command


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text("[tool.modelperf]\n")
    monkeypatch.chdir(tmp_path)
    write_lines(make_line(day) for day in range(3))
    return tmp_path


@needs_git
def test_the_command_writes_a_page_with_links_to_the_remote(project: Path) -> None:
    git(project, "init", "-q")
    git(project, "remote", "add", "origin", "git@github.com:acme/models.git")
    done = run("history", "--html", "page.html")
    assert done.exit_code == 0
    assert "history of latency p50" in done.out
    data = json.loads(unpacked((project / "page.html").read_text(), "data"))["history"]
    assert data["commit_url"] == "https://github.com/acme/models/commit/{commit}"
    page = run("history", "--html", "-", "--commit-url", "http://git/c?id={commit}").out
    assert page.startswith("<!doctype html>")
    assert json.loads(unpacked(page, "data"))["history"]["commit_url"] == "http://git/c?id={commit}"


@pytest.mark.usefixtures("project")
def test_a_page_has_all_points_of_a_large_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing keeps only the last points of a large file."""
    monkeypatch.setenv("MODELPERF_CACHE_DIR", "cache")
    write_lines(make_line(3 + day) for day in range(600))
    run("history")
    page = run("history", "--html", "-").out
    (entry,) = json.loads(unpacked(page, "data"))["history"]["cases"]
    assert len(numbers(entry["levels"])) == entry["count"] == 603


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--commit-url", "https://git/{commit}"], "add --html"),
        (["--html", "-", "--commit-url", "https://git/"], "with {commit} in it"),
        (["--html", "-", "--commit-url", "javascript:alert({commit})"], "takes an address"),
        (["--html", "-", "--json", "-"], "only one of --json and --html"),
        (["--html", "no/folder/page.html"], "there is no folder"),
    ],
)
def test_options_that_exclude_a_page_are_refused(arguments: list[str], message: str) -> None:
    assert message in refusal("history", *arguments)


@needs_git
@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/a/b.git", "https://github.com/a/b/commit/{commit}"),
        ("https://github.com/a/b/", "https://github.com/a/b/commit/{commit}"),
        ("git@github.com:a/b.git", "https://github.com/a/b/commit/{commit}"),
        ("https://user:secret@github.com/a/b", "https://github.com/a/b/commit/{commit}"),
        ("ssh://git@gitlab.example.org:2222/g/s/p.git",
         "https://gitlab.example.org/g/s/p/-/commit/{commit}"),
        ("https://bitbucket.org/a/b", "https://bitbucket.org/a/b/commits/{commit}"),
        ("https://codeberg.org/a/b", "https://codeberg.org/a/b/commit/{commit}"),
        ("https://git.example.org/a/b", None),
        ("/srv/github.com/a/b.git", None),
        ("https://github.com/a/{commit}", None),
    ],
)  # fmt: skip
def test_the_address_of_a_commit_follows_from_the_remote(
    tmp_path: Path, remote: str, address: str | None
) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "remote", "add", "origin", remote)
    assert find_commit_url(tmp_path) == address


def test_without_a_remote_there_are_no_links(tmp_path: Path) -> None:
    assert find_commit_url(tmp_path) is None


def test_a_case_whose_last_run_failed_is_a_finding() -> None:
    calm = make_case(steps=())
    *earlier, last = calm.points
    failed = replace(last, verdict="over budget", reasons=("12 fusions lost",))
    report = history_report(make_history(calm, replace(calm, points=(*earlier, failed))))
    (found,) = report.findings
    assert (found.word, found.tone) == ("over budget", Tone.BAD)
    assert "the last run, at" in found.sentence
    assert "12 fusions lost" in str(found.blocks)
    stepped = make_case(levels=(0.0, 0.1), steps=(1,))
    assert [each.word for each in history_report(make_history(stepped)).findings] == ["step"]
