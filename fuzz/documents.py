"""What must hold of the readers of JSON: baselines, profiles, the peaks of a machine."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from fuzz.laws import check_json, check_shown, hold, read_or_refuse
from fuzz.scratch import scratch_file, scratch_path
from pytest_modelperf.baselines.document import (
    read_machine,
    read_model,
    write_machine,
    write_model,
)
from pytest_modelperf.errors import BaselineError, UsageError
from pytest_modelperf.files.documents import DocumentFile
from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from pytest_modelperf.profiler.shown.document import dump_profile
from pytest_modelperf.profiler.shown.tables.layer_columns import MEASURED_COLUMNS
from pytest_modelperf.profiler.shown.tables.layers import LayerView
from pytest_modelperf.profiles.records import SIDE_BY_SIDE
from pytest_modelperf.profiles.report_pairs import side_by_side_report
from pytest_modelperf.profiles.side_by_side import put_side_by_side
from pytest_modelperf.profiles.store import dump_named, read_named
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.render import render_report
from pytest_modelperf.roofline.peaks import KeptPeaks, find_peaks, keep_peaks
from pytest_modelperf.roofline.records import rooflines_to_json, theoretical_roofs
from pytest_modelperf.roofline.report import roofline_additions
from pytest_modelperf.tracing.chrome_trace import TraceWriter
from pytest_modelperf.tracing.files.opening import RecordedTrace, read_stored_profile
from pytest_modelperf.tracing.files.ort_profile import OrtProfile
from pytest_modelperf.tracing.records import Event
from pytest_modelperf.tracing.report import TraceView, trace_report
from pytest_modelperf.tracing.totals import (
    Grouping,
    Order,
    TraceSummarizer,
    TraceTotals,
    dump_trace_totals,
)
from tests.support.ort_profiles import WIDE, check_nesting
from tests.support.rendered import render_named, render_profile
from tests.support.small_models import parse

_FOLDER = Path("baselines/m")
# More rows take long to be written, and say no more.
_ROWS = 3
# The file of a kept profile is named by the name that is in it.
KEPT_NAME = "kept"
_KEPT_FILE = DocumentFile(Path(f"profiles/m/{KEPT_NAME}.json"))
_VIEW = LayerView(MEASURED_COLUMNS, "ms", _ROWS)
# The file of a machine is named by the key that is in it: a seed has the same.
MACHINE_KEY = "linux-x86_64-zen4-2c"


def check_baseline(data: bytes) -> bool:
    """A file of a baseline is refused, or read, written and read again without a difference."""
    model = read_or_refuse(lambda: read_model(data, _FOLDER / "model.json"), BaselineError)
    if model is not None:
        written = write_model(model)
        hold(read_model(written, _FOLDER / "model.json") == model, "it is read as it was written")
        hold(write_model(read_model(written, Path())) == written, "it is written the same again")
    path = _FOLDER / f"{MACHINE_KEY}.json"
    machine = read_or_refuse(lambda: read_machine(data, path), BaselineError)
    if machine is not None:
        written = write_machine(machine)
        hold(read_machine(written, path) == machine, "it is read as it was written")
        hold(write_machine(read_machine(written, path)) == written, "it is written the same")
    return model is not None or machine is not None


def check_kept_profile(data: bytes) -> bool:
    """A profile under a name is refused, or written, read again, shown, and put beside itself."""
    kept = read_or_refuse(lambda: read_named(data, _KEPT_FILE), BaselineError)
    if kept is None:
        return False
    written = dump_named(kept)
    check_json(written)
    again = read_named(written.encode(), _KEPT_FILE)
    hold(_figures(dump_named(again)) == _figures(written), "it is read as it was written")
    check_shown(render_named(kept, _VIEW, TextStyle()))
    both = read_or_refuse(lambda: put_side_by_side(kept, again), UsageError)
    if both is not None:
        check_json(SIDE_BY_SIDE.dump(both))
        check_shown(render_report(side_by_side_report(both, _ROWS), TextStyle()))
    return True


def _figures(text: str) -> object:
    """What a document says; milliseconds become nanoseconds and back, and a last digit differs."""
    return json.loads(text, parse_float=lambda number: f"{float(number):.9g}")


def check_ort_profile(data: bytes) -> bool:
    """A profile of ONNX Runtime is refused, or a trace whose spans lie within each other."""
    path = scratch_file("profile.json", data)
    profile = read_or_refuse(lambda: OrtProfile(path), UsageError)
    if profile is not None:
        events = list(profile)
        _check_trace(events, profile.notes)
    return profile is not None


def check_stored_profile(data: bytes) -> bool:
    """What `modelperf profile --json` wrote is refused, or a trace like any other."""
    path = scratch_file("profile.json", data)
    profile = read_or_refuse(lambda: read_stored_profile(path), UsageError)
    if profile is not None:
        _check_trace(list(profile.events()), profile.notes)
    return profile is not None


def check_recorded_trace(data: bytes) -> bool:
    """A recording is refused, or a trace like any other, also when it is written once more."""
    path = scratch_file("trace.json", data)
    trace = read_or_refuse(lambda: RecordedTrace(path), UsageError)
    if trace is not None:
        _check_trace(list(trace), trace.notes)
    return trace is not None


def check_peaks(data: bytes) -> bool:
    """The peaks of a machine are found anew as they are kept, and a model has a roofline of them.

    What cannot be read is no error: they are measured anew.
    """
    folder = scratch_file(f"{MACHINE_KEY}.json", data).parent
    found = find_peaks(folder, MACHINE_KEY).peaks
    for peaks in found:
        other = scratch_path("kept")
        (other / f"{MACHINE_KEY}.json").unlink(missing_ok=True)
        hold(keep_peaks(other, peaks) is None, "peaks can be kept")
        hold(find_peaks(other, MACHINE_KEY) == KeptPeaks((peaks,)), "they are found as they were")
        counted = _counted()
        rooflines = {case.case.id: theoretical_roofs(case.static, peaks) for case in counted.cases}
        check_json(dump_profile(counted, rooflines_to_json(rooflines)))
        check_shown(
            render_profile(counted, _VIEW, TextStyle(), roofline_additions(rooflines, _VIEW.top))
        )
    return bool(found)


@cache
def _counted() -> Profile:
    return profile_model(parse(WIDE, opset=17), ProfileRequest())


def _check_trace(events: Sequence[Event], notes: Sequence[str]) -> None:
    """Spans lie within each other, and what is made of them can be written and shown."""
    check_nesting(events)
    stream = io.StringIO()
    writer = TraceWriter(stream)
    for event in events:
        writer.write(event)
    writer.finish({})
    check_json(stream.getvalue())
    for grouping in (Grouping.LAYER, Grouping.TYPE):
        summarizer = TraceSummarizer(grouping)
        for event in events:
            summarizer.add(event)
        summaries = summarizer.finish(Order.TOTAL)
        totals = TraceTotals(by=grouping, notes=tuple(notes), traces=tuple(summaries))
        check_json(dump_trace_totals(totals))
    text = render_report(trace_report(summaries, notes, TraceView(grouping, _ROWS)), TextStyle())
    check_shown(text)
