"""`comment/action.yml` keeps one comment on a pull request, and trusts nothing in the artifact."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from comment_body import LAST_POINTS, MAX_CHARACTERS, EndedRun, Job, render_comment
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from markdown_it import MarkdownIt
from msgspec.structs import replace
from run_reader import MAX_ZIP_BYTES, Artifact

from pytest_modelperf.comparing.changes import KernelChange
from pytest_modelperf.comparing.records import CaseComparison, Metric, Verdict
from pytest_modelperf.history.store import HistoryStore
from pytest_modelperf.profiler.measurements import GraphKernel, RowKind
from pytest_modelperf.profiler.records import Case
from pytest_modelperf.report.picture.drawn import MOST_BOXES
from pytest_modelperf.report.picture.layout import SeenBox
from pytest_modelperf.report.picture.records import BoxState
from pytest_modelperf.testing.outcomes import CaseOutcome, RunReport, Source
from pytest_modelperf.testing.report import dump_run
from tests.actions.runner import Ran, Runner
from tests.actions.stand_in import (
    BOT,
    COMMIT,
    FORK,
    NUMBER,
    REPOSITORY,
    RUN,
    TOKEN,
    StandIn,
    serve,
    tarball,
    workflow_run_event,
    zipped,
)
from tests.history.lines import make_line
from tests.support.facts import make_model
from tests.support.project import write_dense

# The action installs msgspec alone.
NOT_INSTALLED = (
    "archspec", "blake3", "click", "filelock", "numpy", "onnx", "onnxruntime", "pluggy",
    "google", "pytest", "ruptures", "scipy", "tomli", "typing_extensions",
)  # fmt: skip
TITLE = "Model performance"
MARK = "<!-- pytest-modelperf: Model performance -->"
ENDED = EndedRun(
    f"https://github.com/{REPOSITORY}/actions/runs/{RUN}",
    COMMIT,
    "failure",
    (Job("lint", "success"), Job("modelperf", "failure")),
)


def latency(ratio: float, verdict: Verdict) -> Metric:
    """A p50 that is `ratio` times that of the baseline, whose 10 ms may grow by 3 %."""
    return Metric(
        name="latency_p50",
        before=10.0,
        after=10.0 * ratio,
        verdict=verdict,
        interval=(ratio - 0.01, ratio + 0.01),
        allowed=0.03,
        measured_ratio=ratio,
        confidence=0.99,
    )


def outcome(
    name: str = "models/encoder.onnx",
    metric: Metric | None = None,
    **more: Any,  # noqa: ANN401
) -> CaseOutcome:
    """A case that passed, unless the metric says otherwise."""
    comparison = CaseComparison(
        case=Case(batch_size=1, cores=1),
        metrics=(metric or latency(1.0, Verdict.PASSED),),
        layer_types=(),
        **more,
    )
    return CaseOutcome(
        test=f"{name}::b1-c1",
        source=Source(path=name, line=None),
        model=make_model(name.rpartition("/")[2], f"/home/runner/work/{name}", "00" * 32, 100),
        cores=1,
        batch_size=1,
        comparison=comparison,
        engine="onnxruntime 1.31.1",
        confidence=0.99,
        accept="harmful command",
    )


SLOWER = outcome(
    "models/decoder.onnx",
    latency(1.118, Verdict.REGRESSED),
    reasons=("layer dense: MatMul takes longer",),
)


def artifact_of(*outcomes: CaseOutcome, number: object = NUMBER) -> bytes:
    run = dump_run(RunReport(outcomes=outcomes))
    return zipped(
        {
            "modelperf.json": run.encode(),
            "pull-request.json": json.dumps({"number": number}).encode(),
        }
    )


@pytest.fixture
def github() -> Iterator[StandIn]:
    state = StandIn()
    state.artifacts.append(("modelperf", artifact_of(outcome(), SLOWER)))
    with serve(state):
        yield state


@pytest.fixture
def runner(tmp_path: Path, github: StandIn) -> Runner:
    for name in ("runner", "project"):
        (tmp_path / name).mkdir()
    made = Runner(tmp_path / "runner", tmp_path / "project")
    made.blocked = NOT_INSTALLED
    made.token = TOKEN
    made.variables["GITHUB_API_URL"] = github.url
    made.event = workflow_run_event()
    return made


def comment(runner: Runner, **inputs: str) -> Ran:
    return runner.run("comment/action.yml", **inputs)


def bodies(github: StandIn) -> list[str]:
    return [each["body"] for each in github.comments]


# -- one comment


def test_the_first_run_writes_the_comment(runner: Runner, github: StandIn) -> None:
    ran = comment(runner)
    assert not ran.has_failed, ran.log
    (body,) = bodies(github)
    assert body.startswith(
        f"{MARK}\n\n### Model performance: 1 regressed, 1 passed; run: failure\n"
    )
    assert "layer dense: MatMul takes longer" in body
    assert ran.outputs["comment-url"] == github.comments[0]["html_url"]
    assert ran.calls[0].endswith("/actions/requirements.txt")
    assert " --require-hashes " in ran.calls[0]


def test_a_later_run_edits_the_comment_at_any_position(runner: Runner, github: StandIn) -> None:
    """Also on the second page of the comments."""
    for _ in range(120):
        github.add_comment("somebody", "nice")
    github.add_comment(BOT, f"{MARK}\n\nold")
    github.add_comment("somebody", "thanks")
    ran = comment(runner)
    assert not ran.has_failed, ran.log
    assert len(github.comments) == 122
    assert "1 regressed" in bodies(github)[120]
    assert bodies(github)[121] == "thanks"


def test_a_comment_of_another_user_with_the_mark_stays(runner: Runner, github: StandIn) -> None:
    github.add_comment("stranger", f"{MARK}\n\nall is well")
    assert not comment(runner).has_failed
    assert bodies(github)[0] == f"{MARK}\n\nall is well"
    assert len(github.comments) == 2


def test_a_comment_of_a_deleted_account_stays(runner: Runner, github: StandIn) -> None:
    github.add_comment("somebody", f"{MARK}\n\nall is well")
    github.comments[0]["user"] = None
    ran = comment(runner)
    assert not ran.has_failed, ran.log
    assert bodies(github)[0] == f"{MARK}\n\nall is well"
    assert len(github.comments) == 2


def test_each_title_has_its_comment(runner: Runner, github: StandIn) -> None:
    comment(runner, title="Encoder")
    comment(runner, title="Decoder")
    comment(runner, title="Encoder")
    assert [body.splitlines()[0] for body in bodies(github)] == [
        "<!-- pytest-modelperf: Encoder -->",
        "<!-- pytest-modelperf: Decoder -->",
    ]


def test_the_youngest_artifact_counts(runner: Runner, github: StandIn) -> None:
    github.artifacts.append(("other", artifact_of(SLOWER, SLOWER)))
    github.artifacts.append(("modelperf", artifact_of(outcome())))
    assert not comment(runner).has_failed
    assert "### Model performance: 1 passed; run: " in bodies(github)[0]


def test_the_token_is_for_the_api_alone(runner: Runner, github: StandIn) -> None:
    """The archive is on another server, and a process shows its arguments."""
    ran = comment(runner)
    tokens = {asked.path.split("/")[1]: asked.token for asked in github.asked}
    assert tokens == {"repos": f"Bearer {TOKEN}", "storage": None}
    assert TOKEN not in ran.log + "".join(ran.calls)


def test_a_rate_limit_is_not_called_a_missing_right(runner: Runner, github: StandIn) -> None:
    github.is_limited = True
    ran = comment(runner)
    assert ran.has_failed
    assert "was answered with 403. The token has made as many requests as GitHub allows" in ran.log
    assert "permissions" not in ran.log


# -- what is not trusted


def changed(values: Mapping[str, object]) -> dict[str, Any]:
    return {"workflow_run": {**workflow_run_event()["workflow_run"], **values}}


def test_a_pull_request_of_another_repository_gets_no_comment(
    runner: Runner, github: StandIn
) -> None:
    victim = {**github.pulls[NUMBER], "number": 6}
    victim["head"] = {"sha": COMMIT, "ref": "faster", "repo": {"full_name": "victim/project"}}
    github.pulls[6] = victim
    github.artifacts.append(("modelperf", artifact_of(outcome(), number=6)))
    ran = comment(runner)
    assert ran.has_failed
    assert (
        "::error title=modelperf::no comment: the artifact names pull request 6, but the run "
        f"tested the branch faster of {FORK}, which is not that of this pull request\n"
    ) in ran.log
    assert github.comments == []


@pytest.mark.parametrize("change", ["commit", "state"])
def test_an_outdated_run_writes_nothing(runner: Runner, github: StandIn, change: str) -> None:
    if change == "commit":
        github.pulls[NUMBER]["head"]["sha"] = "f" * 40
    else:
        github.pulls[NUMBER]["state"] = "closed"
    ran = comment(runner)
    assert not ran.has_failed, ran.log
    assert (
        f"::notice title=modelperf::no comment: pull request {NUMBER} is closed, or has a"
        in ran.log
    )
    assert github.comments == []


@pytest.mark.parametrize(
    ("values", "notice"),
    [
        ({"event": "push"}, "no comment: the run was of a push, not of a pull request"),
        ({"conclusion": "cancelled"}, "no comment: the run is cancelled"),
    ],
)
def test_a_run_without_a_report_needs_no_comment(
    runner: Runner, github: StandIn, values: dict[str, str], notice: str
) -> None:
    runner.event = changed(values)
    ran = comment(runner)
    assert not ran.has_failed, ran.log
    assert f"::notice title=modelperf::{notice}\n" in ran.log
    assert github.asked == []


def bomb() -> bytes:
    """70 MB of blanks in a small archive."""
    return zipped({"modelperf.json": b" " * 70_000_000, "pull-request.json": b'{"number": 5}'})


def damaged() -> bytes:
    """An archive whose first compressed byte announces a kind of block that there is not."""
    name = "pull-request.json"
    content = bytearray(zipped({name: b'{"number": 5}'}))
    header_bytes = 30
    content[header_bytes + len(name)] = 0b111
    return bytes(content)


def packed_by(way: int) -> bytes:
    """An archive that is compressed in another way than that of GitHub."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", way) as archive:
        archive.writestr("pull-request.json", b'{"number": 5}')
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no zip", "the artifact is no zip file: File is not a zip file"),
        (zipped({}), "the artifact has no pull-request.json: does the input `artifact` name"),
        (zipped({"pull-request.json": b"{}"}), "pull-request.json of the artifact names no pull"),
        (zipped({"pull-request.json": b" " * 2000}), "pull-request.json of the artifact has more"),
        (artifact_of(number=404), "was answered with 404. It is not there, or the token"),
        (artifact_of(number="../../issues/1"), "pull-request.json of the artifact names no pull"),
        (
            zipped({"pull-request.json": b'{"number": 5}', "modelperf.json": b'{"schema": 1}'}),
            "modelperf.json of the artifact is not the report of a run: Object missing required",
        ),
        (bomb(), "modelperf.json of the artifact has more than 67,108,864 bytes"),
        (bytes(MAX_ZIP_BYTES + 1), "is larger than 16 MiB, which is too much here"),
        (damaged(), "pull-request.json of the artifact cannot be read: Error -3 while decompres"),
        (
            packed_by(zipfile.ZIP_BZIP2),
            "pull-request.json of the artifact cannot be read: it is compressed by method 12 of",
        ),
        (
            zipped({"\u00e9": b""}).replace(b"\xc3\xa9", b"\xff\xff"),
            "the artifact is no zip file: 'utf-8' codec can't decode byte 0xff",
        ),
    ],
    ids=[
        "text", "empty", "no-number", "long", "unknown", "path", "no-run", "bomb", "large",
        "damaged", "another-way", "name",
    ],
)  # fmt: skip
def test_a_broken_artifact_is_an_error_that_says_what_is_wrong(
    runner: Runner, github: StandIn, content: bytes, message: str
) -> None:
    github.artifacts.append(("modelperf", content))
    ran = comment(runner)
    assert ran.has_failed
    assert message in ran.log
    assert "Traceback" not in ran.log
    assert github.comments == []


@pytest.mark.parametrize("key", ["before", "after", "limit", "ratio"])
def test_a_figure_that_no_unit_can_show_is_refused_with_its_key(
    runner: Runner, github: StandIn, key: str
) -> None:
    run = json.loads(dump_run(RunReport(outcomes=(SLOWER,))))
    run["cases"][0]["metrics"][0][key] = 1e303
    number = json.dumps({"number": NUMBER}).encode()
    files = {"modelperf.json": json.dumps(run).encode(), "pull-request.json": number}
    github.artifacts.append(("modelperf", zipped(files)))
    ran = comment(runner)
    assert ran.has_failed
    assert "modelperf.json of the artifact is not the report of a run" in ran.log
    assert f"$.cases[0].metrics[0].{key}" in ran.log
    assert "Traceback" not in ran.log


def test_an_artifact_that_is_missing_is_named(runner: Runner, github: StandIn) -> None:
    github.artifacts.clear()
    ran = comment(runner)
    assert ran.has_failed
    assert (
        "::error title=modelperf::the run has no artifact 'modelperf': its tests did not" in ran.log
    )


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"title": "a --> b"}, "the input title is 2 to 60 letters, digits, blanks, dots and"),
        ({"title": ""}, "the input title is 2 to 60 letters, digits, blanks, dots and"),
    ],
)
def test_a_title_cannot_end_the_hidden_mark(
    runner: Runner, github: StandIn, inputs: dict[str, str], message: str
) -> None:
    ran = comment(runner, **inputs)
    assert ran.has_failed
    assert message in ran.log
    assert github.asked == []


def test_a_workflow_of_another_kind_gets_an_error_that_says_what_to_use(runner: Runner) -> None:
    runner.event = {"pull_request": {"number": 5}}
    ran = comment(runner)
    assert ran.has_failed
    assert "the comment is written by a workflow `on: workflow_run`" in ran.log


HOSTILE = (
    "x](https://evil.example) @everyone #1 <img src=x> <!-- --> **b** `c` | d\n# heading\n"
    "</details> ::error::gone"
)


def render(*outcomes: CaseOutcome) -> str:
    cases = Artifact(artifact_of(*outcomes)).read_cases()
    return render_comment(TITLE, cases, (), ENDED)


def test_a_forged_report_does_not_hide_that_the_run_failed(runner: Runner, github: StandIn) -> None:
    """The artifact says that all is well. GitHub knows better, and also of the other jobs."""
    github.artifacts.append(
        ("modelperf", artifact_of(outcome(metric=latency(0.9, Verdict.IMPROVED))))
    )
    github.jobs = {f"fine {number}": "success" for number in range(120)}
    github.jobs |= {"docs": "skipped", "modelperf": "failure", "build": "timed_out"}
    assert not comment(runner).has_failed
    lines = bodies(github)[0].splitlines()
    assert lines[2] == "### Model performance: 1 improved; run: failure"
    assert "job <code>modelperf</code>: **failure**, job <code>build</code>: **timed out**" in lines
    assert (
        "These figures are the branch's own claim: its code measured them and wrote them down. "
        "How the run and its jobs ended comes from GitHub."
    ) in lines


def test_a_job_that_may_fail_is_named_in_a_run_that_succeeded(
    runner: Runner, github: StandIn
) -> None:
    runner.event = changed({"conclusion": "success"})
    assert not comment(runner).has_failed
    (body,) = bodies(github)
    assert "### Model performance: 1 regressed, 1 passed; run: success\n" in body
    assert "job <code>modelperf</code>: **failure**\n" in body
    assert "job <code>lint" not in body


def test_texts_of_a_stranger_stay_texts() -> None:
    hostile = outcome(HOSTILE, latency(1.2, Verdict.REGRESSED), reasons=(HOSTILE,))
    failed = outcome("b.onnx", failure=HOSTILE)
    cases = Artifact(artifact_of(hostile, failed)).read_cases()
    jobs = (Job(HOSTILE, HOSTILE),) * 40
    body = render_comment(TITLE, cases, (), EndedRun(ENDED.url, COMMIT, "failure", jobs))
    parsed = MarkdownIt("gfm-like", {"linkify": False}).parse(body)
    inline = [child for token in parsed for child in token.children or ()]
    links = [token.attrs["href"] for token in inline if token.type == "link_open"]
    assert links == [ENDED.url]
    markup = {t.content for t in (*parsed, *inline) if t.type in {"html_inline", "html_block"}}
    tags = {"<code>", "</code>"}
    assert all(m in tags or m.startswith((MARK, "<pre>")) for m in markup), markup
    assert "evil.example" in body
    for active in ("@everyone", "<img", "::error::", "](https://evil"):
        assert active not in body


def test_no_command_of_a_stranger_is_shown() -> None:
    assert "harmful" not in render(SLOWER)


@given(
    st.lists(
        st.tuples(st.text(max_size=400), st.lists(st.text(max_size=3000), max_size=8)), max_size=8
    )
)
def test_a_comment_is_never_too_long(texts: list[tuple[str, list[str]]]) -> None:
    outcomes = [
        outcome(f"a{name}", latency(1.2, Verdict.REGRESSED), reasons=tuple(reasons))
        for name, reasons in texts
    ]
    assert len(render(*outcomes)) <= MAX_CHARACTERS + 200


def test_a_run_without_a_case_points_to_its_log() -> None:
    assert "The run tested no case. Its log says why." in render()


def test_a_failure_that_its_test_expects_is_counted_as_that() -> None:
    body = render(outcome(), replace(SLOWER, is_xfailed=True))
    assert "Model performance: 1 xfailed, 1 passed" in body
    assert "xfailed: regressed: p50 latency +11.8 %" in body


def test_many_cases_are_cut_the_worst_shown() -> None:
    slow = [
        outcome(f"{number}.onnx", latency(1.2, Verdict.REGRESSED), reasons=("long " * 100,) * 6)
        for number in range(300)
    ]
    body = render(*[outcome(f"fine{number}.onnx") for number in range(900)], *slow)
    assert len(body) <= MAX_CHARACTERS + 200
    assert "fine" not in body
    assert "1,100 more cases are on the page of the run." in body
    assert "more cases are explained on the page of the run." in body


def test_long_names_shorten_the_table() -> None:
    """Each of their characters becomes six."""
    body = render(*[outcome(f"{number}{'|' * 400}") for number in range(100)])
    assert len(body) <= MAX_CHARACTERS
    assert re.search(r"^[89]\d more cases are on the page of the run\.$", body, re.MULTILINE)


def test_a_comment_as_it_is_shown() -> None:
    shown = render(outcome(), SLOWER).replace(ENDED.url, "URL").replace("<code>", "<c>")
    assert shown == snapshot("""\
<!-- pytest-modelperf: Model performance -->

### Model performance: 1 regressed, 1 passed; run: failure

Commit <c>012345678</code>, [all reports of the run](URL)

job <c>modelperf</code>: **failure**

These figures are the branch's own claim: its code measured them and wrote them down. \
How the run and its jobs ended comes from GitHub.

| case | verdict | p50 before | p50 now | change | interval |
| --- | --- | ---: | ---: | ---: | ---: |
| <c>models/decoder.onnx::b1-c1</code> | regressed | 10.00 ms | 11.18 ms | +11.8 % | +10.8 … +12.8 % |

<details><summary>1 case without a change</summary>

| case | verdict | p50 before | p50 now | change | interval |
| --- | --- | ---: | ---: | ---: | ---: |
| <c>models/encoder.onnx::b1-c1</code> | passed | 10.00 ms | 10.00 ms | 0 % | -1.0 … +1.0 % |

</details>

**<c>models/decoder.onnx::b1-c1</code> regressed: p50 latency +11.8 % (99 % interval \
+10.8 … +12.8 %), allowed +3 %**

| metric | before | now | change | interval | allowed |  |
| --- | ---: | ---: | ---: | ---: | ---: | --- |
| p50 latency | 10.00 ms | 11.18 ms | +11.8 % | +10.8 … +12.8 % | +3 % | regressed |

- layer dense: MatMul takes longer
""")  # noqa: E501  # a row of a table


def drawn(*boxes: SeenBox) -> str:
    """The comment on a slower case with these kernels in its report."""
    run = json.loads(dump_run(RunReport(outcomes=(SLOWER,))))
    run["cases"][0]["picture"] = msgspec.to_builtins(boxes)
    content = zipped({"modelperf.json": json.dumps(run).encode()})
    return render_comment(TITLE, Artifact(content).read_cases(), (), ENDED)


def test_the_kernels_that_changed_are_drawn_behind_a_click() -> None:
    body = drawn(
        SeenBox(op_type="", name="", kernels=7),
        SeenBox(op_type="MatMul", name="dense", change_ms=1.18, inputs=(0,)),
    )
    reasons = "- layer dense: MatMul takes longer\n\n"
    assert body.partition(reasons)[2] == snapshot("""\
<details><summary>The kernels that changed</summary>

```mermaid
flowchart TD
  k0[["7 unchanged kernels"]]
  k1["MatMul<br>dense<br>+1.180 ms"]:::slower
  k0 --> k1
  classDef slower fill:#fde4e1,stroke:#b3261e,color:#1b1f23
```

</details>
""")


def test_the_report_of_a_run_has_the_kernels_that_its_comment_draws() -> None:
    ran = [
        GraphKernel(op_type="Conv", kind=RowKind.LAYER, layer=None, ns=ms * 1e6) for ms in (2, 3)
    ]
    kernels = (KernelChange(before=ran[0], after=ran[1], state=BoxState.CHANGED),)
    slower = latency(1.118, Verdict.REGRESSED)
    assert 'k0["Conv<br>+1.000 ms"]:::slower' in render(outcome(metric=slower, kernels=kernels))
    assert "mermaid" not in render(outcome(kernels=kernels))


def test_a_drawing_of_a_stranger_has_no_markup_and_no_commands() -> None:
    evil = (
        'a"]\n```\n<img src=x> click k0 href "https://evil.example" %%{init: {}}%% #quot; @everyone'
    )
    body = drawn(
        SeenBox(op_type=evil, name=evil, change_ms=-1e20, inputs=(0, 99, 10**9), state=BoxState.NEW)
    )
    (chart,) = re.findall(r"^```mermaid\n(.*?)^```", body, re.MULTILINE | re.DOTALL)
    assert body.count("```") == 2
    assert chart.count('"') == 2
    assert "k99" not in chart
    for active in ("<img", "#quot", "@", "%%", "{"):
        assert active not in chart


def test_a_drawing_of_too_many_kernels_is_left_out() -> None:
    assert "mermaid" not in drawn(*[SeenBox(op_type="Add", name="")] * (MOST_BOXES + 1))


def test_a_real_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    """One model has no baseline, the other is over its budget."""
    for name in ("runner", "project"):
        (tmp_path / name).mkdir()
    first = Runner(tmp_path / "runner", tmp_path / "project")
    first.variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    first.event = {"pull_request": {"number": 5}}
    write_dense(first.project / "new.onnx")
    write_dense(first.project / "heavy.onnx")
    (first.project / "pyproject.toml").write_text(
        '[tool.modelperf.models."heavy.onnx"]\nbudget = {macs = 14}\n'
        '[tool.modelperf.models."new.onnx"]\n'
    )
    options = "-p pytest_modelperf.plugin -p no:cacheprovider --modelperf-static-only"
    ran = first.run("action.yml", arguments=options, page="false")
    assert ran.outputs["verdict"] == "over budget", ran.log
    folder = Path(ran.outputs["report"])
    content = zipped({path.name: path.read_bytes() for path in folder.iterdir()})
    artifact = Artifact(content)
    assert artifact.read_number() == 5
    words = {case.name: case.outcome.word for case in artifact.read_cases()}
    assert words == snapshot({"heavy.onnx::b1-c1": "over budget", "new.onnx::b1-c1": "new"})


# -- history


def history_files(tmp_path: Path, points: int) -> dict[str, bytes]:
    store = HistoryStore(tmp_path / "history")
    store.append(make_line(day, 1.0 if day < points // 2 else 1.1) for day in range(points))
    return {
        path.relative_to(store.root).as_posix(): path.read_bytes()
        for path in store.root.rglob("*.jsonl")
    }


def test_the_curve_has_the_last_points_of_the_main_branch(
    runner: Runner, github: StandIn, tmp_path: Path
) -> None:
    github.branches["perf"] = tarball(
        {**history_files(tmp_path, 40), "README.md": b"hello", "../../out.jsonl": b"{}"}
    )
    ran = comment(runner, history_branch="perf")
    assert not ran.has_failed, ran.log
    (body,) = bodies(github)
    curve = next(line for line in body.splitlines() if "▁" in line)
    cells = curve.split(" | ")
    assert cells[2:5] == ["▁" * 10 + "█" * 20, "2026-01-11", "2026-02-09"]
    assert cells[5] == "+10.0 % (+8.0 … +12.0 %)"
    assert len(cells[2]) == LAST_POINTS


def test_the_curves_of_two_engines_have_different_names(
    runner: Runner, github: StandIn, tmp_path: Path
) -> None:
    """A project may have moved to another engine, and the case kept its id."""
    store = HistoryStore(tmp_path / "history")
    lines = [make_line(day) for day in range(4)]
    store.append(
        msgspec.structs.replace(line, engine=engine)
        for engine in ("onnxruntime", "openvino")
        for line in lines
    )
    (path,) = store.root.rglob("*.jsonl")
    github.branches["perf"] = tarball({path.relative_to(store.root).as_posix(): path.read_bytes()})
    assert not comment(runner, history_branch="perf").has_failed
    curves = [line for line in bodies(github)[0].splitlines() if "▅" in line]
    cells = [line.split(" | ")[1] for line in curves]
    assert cells == ["<code>b1-c1</code>", "<code>b1-c1 openvino</code>"]


@pytest.mark.parametrize(
    ("content", "notice"),
    [
        (
            None,
            (
                "no curves: there is no branch perf, which a run of the main branch makes, or the "
                "token may not read it, which takes `permissions: contents: read`"
            ),
        ),
        (tarball({"README.md": b""}), "no curves: the branch perf has no history"),
    ],
)
def test_a_comment_goes_without_curves_until_there_are_points(
    runner: Runner, github: StandIn, content: bytes | None, notice: str
) -> None:
    if content is not None:
        github.branches["perf"] = content
    ran = comment(runner, history_branch="perf")
    assert not ran.has_failed, ran.log
    assert f"::notice title=modelperf::{notice}\n" in ran.log
    assert "before this change" not in bodies(github)[0]
