"""How long a page of many cases takes to open in a headless Chromium, and one of a single case.

    python benchmarks/large_page.py                     300 cases of some 400 layers
    python benchmarks/large_page.py --cases 50 --times 9

Two models that differ in an activation are compared once, for real. The page has a copy of this
case for each of 300 batch sizes. Both pages are opened in turn, each time in a new tab:

- answers: until the overview is shown and a case can be chosen;
- drawn: until every part of the case is drawn, with the charts that are in sight;
- processor: the time that the page ran on a processor until then;
- all charts: until those are drawn, too, to which a reader would have to scroll.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import results
from expected import Expectation
from measuring import Program
from msgspec.structs import replace
from playwright.sync_api import Browser, sync_playwright
from results import Result, Rows
from scale_models import Recipe, write_chain
from shown import markdown

from pytest_modelperf.api import compare
from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.comparing.records import Comparison
from pytest_modelperf.comparing.report import comparison_report
from pytest_modelperf.report.html.render import render_page

LEAST_NODES = 500
LIMIT_MS = 600_000.0
# What a page of the usual form may take.
MOST_MS = 2_000.0
CASES = 300
# Whether the parts are drawn, and of the charts those in sight.
DRAWN = """() => document.documentElement.dataset.state
    && [...document.querySelectorAll(".plot")].every((chart) => {
        const { top, bottom, height } = chart.getBoundingClientRect();
        return chart.layout || !height || bottom < 0 || top > innerHeight;
    })"""
ALL_CHARTS = "modelperf.charts.load().then(modelperf.charts.showAll)"


@dataclass(frozen=True, slots=True)
class Opened:
    """One page opened once; `written_s` is the time on a processor that it took to write it."""

    cases: int
    layers: int
    bytes: int
    written_s: float
    answers_ms: float
    drawn_ms: float
    processor_ms: float
    all_charts_ms: float


@dataclass(frozen=True, slots=True)
class Page:
    """A page in its file, with the time on a processor that it took to write it."""

    path: Path
    cases: int
    layers: int
    written_s: float


def compare_chains(folder: Path) -> Comparison:
    """A chain, and the same with another activation in the middle."""
    old, new = folder / "old.onnx", folder / "new.onnx"
    write_chain(Recipe(nodes=LEAST_NODES), old)
    write_chain(Recipe(nodes=LEAST_NODES, changed=1), new)
    return compare(old, new, max_seconds=10.0)


def with_cases(found: Comparison, count: int) -> Comparison:
    """The comparison with a copy of its case for each of `count` batch sizes."""
    (only,) = found.cases
    sizes = range(1, count + 1)
    cases = (replace(only, case=replace(only.case, batch_size=size)) for size in sizes)
    return replace(found, cases=tuple(cases))


def write_page(found: Comparison, count: int, path: Path) -> Page:
    started = time.process_time()
    report = comparison_report(with_cases(found, count), COMMAND_WORDING)
    path.write_text(render_page(report))
    seconds = round(time.process_time() - started, 2)
    return Page(path, count, len(found.cases[0].layers), seconds)


def open_often(browser: Browser, pages: Sequence[Page], times: int) -> Iterator[Opened]:
    for _ in range(times):
        for page in pages:
            yield open_page(browser, page)


def open_page(browser: Browser, page: Page) -> Opened:
    with browser.new_context() as context:
        tab = context.new_page()
        tab.set_default_timeout(LIMIT_MS)
        tools = context.new_cdp_session(tab)
        tools.send("Performance.enable", {"timeDomain": "threadTicks"})
        started = time.monotonic()
        tab.goto(page.path.as_uri(), wait_until="commit")
        tab.wait_for_function("document.documentElement?.classList.contains('unpacked')")
        answers = time.monotonic()
        tab.wait_for_function(DRAWN)
        drawn = time.monotonic()
        metrics = tools.send("Performance.getMetrics")["metrics"]
        (seconds,) = (each["value"] for each in metrics if each["name"] == "TaskDuration")
        tab.evaluate(ALL_CHARTS)
        all_charts = time.monotonic()
        return Opened(
            cases=page.cases,
            layers=page.layers,
            bytes=page.path.stat().st_size,
            written_s=page.written_s,
            answers_ms=round(1e3 * (answers - started), 1),
            drawn_ms=round(1e3 * (drawn - started), 1),
            processor_ms=round(1e3 * seconds, 1),
            all_charts_ms=round(1e3 * (all_charts - started), 1),
        )


def tables(result: Result) -> Mapping[str, str]:
    lines = []
    for rows in _by_cases(result):
        first = rows[0]
        times = [
            f"{_median(rows, name) / 1e3:.1f} s"
            for name in ("answers_ms", "drawn_ms", "processor_ms", "all_charts_ms")
        ]
        size = f"{first['bytes'] / 1e6:.1f} MB"
        lines.append(
            (str(first["cases"]), str(first["layers"]), size, f"{first['written_s']:.1f} s", *times)
        )
    what = ("cases", "layers of each", "size")
    header = (*what, "written in", "answers", "drawn", "processor", "all charts")
    return {"large_page": markdown(header, lines, "rrrrrrrr")}


def expectations(result: Result) -> Sequence[Expectation]:
    rows = _by_cases(result)[-1]
    what = f"a page of {rows[0]['cases']} cases of {rows[0]['layers']} layers"
    limit = f"at most {MOST_MS / 1e3:g} s"
    return tuple(
        Expectation(f"{what}: {done}", limit, f"{found / 1e3:.1f} s", found <= MOST_MS)
        for done, found in (
            ("answers", _median(rows, "answers_ms")),
            ("drawn", _median(rows, "drawn_ms")),
        )
    )


def _by_cases(result: Result) -> list[list[results.Row]]:
    """The rows of each page, those of the smallest page first."""
    rows = result.rows["opened"]
    counts = sorted({row["cases"] for row in rows})
    return [[row for row in rows if row["cases"] == count] for count in counts]


def _median(rows: Sequence[results.Row], name: str) -> float:
    return float(statistics.median(row[name] for row in rows))


def measure(options: argparse.Namespace) -> Rows:
    chromium = os.environ.get("MODELPERF_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        sys.exit("no chromium in PATH, and MODELPERF_CHROMIUM is not set")
    folder = options.folder
    with sync_playwright() as playwright:
        found = compare_chains(folder)
        pages = [write_page(found, count, folder / f"{count}.html") for count in (1, options.cases)]
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        rows = list(open_often(browser, pages, options.times))
        browser.close()
    return {"opened": rows}


if __name__ == "__main__":
    program = Program("large_page", __doc__, tables, expectations)
    program.number("--cases", CASES, "cases of the large page")
    program.number("--times", 5, "how often each page is opened")
    sys.exit(program.run(measure))
