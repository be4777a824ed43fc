"""What must hold of the readers of JSON: baselines, kept profiles, profiles of ONNX Runtime."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

from fuzz.laws import BrokenLawError, hold, read_or_refuse
from fuzz.scratch import scratch_file
from pytest_modelperf.baselines.decode import decode_machine, decode_model
from pytest_modelperf.baselines.encode import encode_machine, encode_model
from pytest_modelperf.errors import BaselineError, UsageError
from pytest_modelperf.profile_files.ort_profile import OrtProfile
from pytest_modelperf.profile_files.stored_profile import read_stored_profile
from pytest_modelperf.report.chrome_trace import TraceWriter
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.report.trace_text import TraceView, render_trace
from pytest_modelperf.serde.trace import dump_trace_summary
from pytest_modelperf.trace_summary import TraceSummarizer
from pytest_modelperf.trace_totals import Grouping, Order
from pytest_modelperf.traces import Event
from tests.ort_profiles import check_nesting

_FOLDER = Path("baselines/m")
# More rows take long to be written, and say no more.
_ROWS = 3
# The file of a machine is named by the key that is in it: a seed has the same.
MACHINE_KEY = "linux-x86_64-zen4-2c"


def check_baseline(data: bytes) -> None:
    """A file of a baseline is refused, or read, written and read again without a difference."""
    model = read_or_refuse(lambda: decode_model(data, _FOLDER / "model.json"), BaselineError)
    if model is not None:
        written = encode_model(model)
        hold(decode_model(written, _FOLDER / "model.json") == model, "it is read as it was written")
        hold(encode_model(decode_model(written, Path())) == written, "it is written the same again")
    path = _FOLDER / f"{MACHINE_KEY}.json"
    machine = read_or_refuse(lambda: decode_machine(data, path), BaselineError)
    if machine is not None:
        written = encode_machine(machine)
        hold(decode_machine(written, path) == machine, "it is read as it was written")
        hold(encode_machine(decode_machine(written, path)) == written, "it is written the same")


def check_ort_profile(data: bytes) -> None:
    """A profile of ONNX Runtime is refused, or a trace whose spans lie within each other."""
    path = scratch_file("profile.json", data)
    profile = read_or_refuse(lambda: OrtProfile(path), UsageError)
    if profile is not None:
        events = list(profile)
        _check_trace(events, profile.notes)


def check_stored_profile(data: bytes) -> None:
    """What `modelperf profile --json` wrote is refused, or a trace like any other."""
    path = scratch_file("profile.json", data)
    profile = read_or_refuse(lambda: read_stored_profile(path), UsageError)
    if profile is not None:
        _check_trace(list(profile.events()), profile.notes)


def _check_trace(events: Sequence[Event], notes: Sequence[str]) -> None:
    """Spans lie within each other, and what is made of them can be written and shown."""
    check_nesting(events)
    stream = io.StringIO()
    writer = TraceWriter(stream)
    for event in events:
        writer.write(event)
    writer.finish({})
    _check_json(stream.getvalue())
    for grouping in (Grouping.LAYER, Grouping.TYPE):
        summarizer = TraceSummarizer(grouping)
        for event in events:
            summarizer.add(event)
        summaries = summarizer.finish(Order.TOTAL)
        _check_json(dump_trace_summary(summaries, tuple(notes), grouping))
    text = render_trace(summaries, notes, TraceView(grouping, _ROWS), TextStyle())
    hold(text.replace("\n", "").isprintable(), "a report can be shown")


def _check_json(text: str) -> None:
    json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise BrokenLawError(f"JSON has no {name}")
