"""What must hold of the readers of what runs left behind: histories, reports, any trace, answers.

The report of a run in CI may come from a stranger, and is read with the right to write a comment.
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from fuzz.laws import check_json, check_shown, hold, read_or_refuse
from fuzz.scratch import scratch_file, scratch_path
from pytest_modelperf.cli import main
from pytest_modelperf.cluster.records import JobAnswer
from pytest_modelperf.cluster.wire import from_text, to_text
from pytest_modelperf.comparing.records import Comparison
from pytest_modelperf.errors import ClusterError, UsageError
from pytest_modelperf.history.exchange import FORMATS
from pytest_modelperf.history.page_data import history_data
from pytest_modelperf.history.records import HISTORY, HistoryMetric, P50Line
from pytest_modelperf.history.report import history_report
from pytest_modelperf.history.store import HistoryFile, HistoryStore
from pytest_modelperf.history.summary import HistoryQuery, chain_cases, find_drifts, read_history
from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.report.exports import render_csv
from pytest_modelperf.report.html.render import dump_data
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report

# As GitHub starts the script of an action: its folder is where it imports from.
sys.path.append(str(Path(__file__).resolve().parent.parent / "actions"))

from comment_body import MAX_CHARACTERS, Curve, EndedRun, Job, render_comment
from run_reader import Artifact
from workflow import StepError

_RUN = EndedRun("https://example.org/runs/1", "0" * 40, "failure", (Job("tests", "failure"),))
# The most of a trace that is shown.
_TOP = "3"
_ALLOWED_DRIFT = 0.05


def check_history(data: bytes) -> bool:
    """Lines are read or skipped with a note; what is read of them is listed in every form.

    Whether one was read.
    """
    path = _history_file(data)
    for metric in (HistoryMetric.P50, HistoryMetric.MACS):
        history = read_history(HistoryStore(path.parent.parent), HistoryQuery(metric=metric))
        hold(all(note.isprintable() for note in history.notes), "a note can be shown")
        check_json(HISTORY.dump(history))
        check_json(dump_data(history_data(history)))
        for render in FORMATS.values():
            read_or_refuse(lambda: render(history), UsageError)  # noqa: B023  # called at once
        drifts = find_drifts(history, _ALLOWED_DRIFT)
        report = history_report(history, allowed_drift=_ALLOWED_DRIFT, drifts=drifts)
        check_shown(render_report(report, TextStyle()))
        render_csv(report).encode()
    curves = _curves(path)
    render_comment("title", (), curves, _RUN)
    return bool(curves)


def _history_file(data: bytes) -> Path:
    folder = scratch_path("history/m")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "linux-x86_64-2c.jsonl"
    path.write_bytes(data)
    return path


def _curves(path: Path) -> tuple[Curve, ...]:
    chains = chain_cases(HistoryFile(path).read(P50Line), HistoryMetric.P50)
    return tuple(
        Curve("m", "linux", case, chain.points)
        for (case, _), chain in chains.items()
        if chain.points
    )


def check_run_report(data: bytes) -> bool:
    """The report of a run is refused, or makes a comment that GitHub takes."""
    try:
        cases = Artifact(_zipped({"modelperf.json": data})).read_cases()
    except StepError as error:
        hold(bool(str(error).encode()), "an error can be written to the log")
        return False
    comment = render_comment("title", cases, (), _RUN)
    check_shown(comment)
    hold(len(comment) <= MAX_CHARACTERS, f"{len(comment)} characters are too many")
    return True


def _zipped(files: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return content.getvalue()


def check_trace_file(data: bytes) -> bool:
    """`modelperf trace FILE` sums the file up in every form, or refuses it in words."""
    path = scratch_file("given.json", data)
    forms = {name: scratch_path(f"totals.{name}") for name in ("json", "csv", "chrome")}
    is_taken = False
    for grouping in ("operator", "layer"):
        for target in forms.values():
            target.unlink(missing_ok=True)
        options = [f"--{name}={target}" for name, target in forms.items()]
        shown = _run_command("trace", str(path), "--by", grouping, "--top", _TOP, *options)
        check_shown(shown)
        for name in ("json", "chrome"):
            if forms[name].exists():
                is_taken = True
                check_json(forms[name].read_text(encoding="utf-8"))
    return is_taken


def _run_command(*arguments: str) -> str:
    """What the command printed; its exit code says that it succeeded, or refused its input."""
    said = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            main(arguments, prog_name="modelperf")
    except SystemExit as ended:
        hold(ended.code in {0, 2}, f"it ended with {ended.code}")
    return said.getvalue()


def check_answer(data: bytes) -> bool:
    """What a machine of a cluster answers is refused in words, or written and read again."""
    text = data.decode("utf-8", "replace")
    is_taken = False
    for kind in (JobAnswer, Profile, Comparison):
        found = read_or_refuse(lambda: from_text(text, kind), ClusterError)  # noqa: B023  # at once
        if found is not None:
            is_taken = True
            written = to_text(found)
            hold(to_text(from_text(written, kind)) == written, "it is read as it was written")
    return is_taken
