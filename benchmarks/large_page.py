"""How long a page of many cases takes to open in a headless Chromium, and one of a single case.

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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from expected import Expectation
from measuring import Program
from msgspec.structs import replace
from playwright.sync_api import Browser, sync_playwright
from results import Result, Row, Rows
from scale_models import Recipe, write_chain
from shown import grouped, table

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
    def seconds(name: str) -> Callable[[Sequence[Row]], str]:
        return lambda rows: f"{_median(rows, name) / 1e3:.1f} s"

    columns: dict[str, Callable[[Sequence[Row]], object]] = {
        "cases": lambda rows: rows[0]["cases"],
        "layers of each": lambda rows: rows[0]["layers"],
        "size": lambda rows: f"{rows[0]['bytes'] / 1e6:.1f} MB",
        "written in": lambda rows: f"{rows[0]['written_s']:.1f} s",
        "answers": seconds("answers_ms"),
        "drawn": seconds("drawn_ms"),
        "processor": seconds("processor_ms"),
        "all charts": seconds("all_charts_ms"),
    }
    return {"large_page": table(_by_cases(result), columns, "r" * len(columns))}


def expectations(result: Result) -> Sequence[Expectation]:
    rows = _by_cases(result)[-1]
    what = f"a page of {rows[0]['cases']} cases of {rows[0]['layers']} layers"
    limit = f"at most {MOST_MS / 1e3:g} s"
    found = {done: _median(rows, f"{done}_ms") for done in ("answers", "drawn")}
    return tuple(
        Expectation(f"{what}: {done}", limit, f"{ms / 1e3:.1f} s", ms <= MOST_MS)
        for done, ms in found.items()
    )


def _by_cases(result: Result) -> list[list[Row]]:
    """The rows of each page, those of the smallest page first."""
    groups = grouped(result.rows["opened"], lambda row: int(row["cases"]))
    return [groups[count] for count in sorted(groups)]


def _median(rows: Sequence[Row], name: str) -> float:
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
        rows = [open_page(browser, page) for _ in range(options.times) for page in pages]
        browser.close()
    return {"opened": rows}


if __name__ == "__main__":
    program = Program("large_page", __doc__, tables, expectations)
    program.number("--cases", CASES, "cases of the large page")
    program.number("--times", 5, "how often each page is opened")
    sys.exit(program.run(measure))
