"""How long a page of many cases takes to open in a headless Chromium, beside one of a single case.

    python benchmarks/large_page.py                     300 cases of some 400 kernels
    python benchmarks/large_page.py --cases 50 --times 9

Two models that differ in an activation are compared once, for real. The page has this case so many
times, each with another batch size. Both pages are opened in turn, each time by a new tab, until
everything is drawn. What else runs on the machine decides how long that takes, so the time that the
page spent on a processor is told as well, with the load.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace
from playwright.sync_api import Browser, sync_playwright
from scale_models import Recipe, write_chain

from pytest_modelperf.api import compare
from pytest_modelperf.cli.wording import COMMAND_WORDING
from pytest_modelperf.comparing.page import render_comparison_page
from pytest_modelperf.comparing.records import Comparison

LEAST_NODES = 500
LIMIT_MS = 600_000.0


def compare_chains(folder: Path) -> Comparison:
    """A chain, and the same with another activation in the middle."""
    old, new = folder / "old.onnx", folder / "new.onnx"
    write_chain(Recipe(nodes=LEAST_NODES), old)
    write_chain(Recipe(nodes=LEAST_NODES, changed=1), new)
    return compare(old, new, max_seconds=10.0)


def with_cases(found: Comparison, count: int) -> Comparison:
    """The comparison with its case so many times, each with another batch size."""
    (only,) = found.cases
    sizes = range(1, count + 1)
    cases = (replace(only, case=replace(only.case, batch_size=size)) for size in sizes)
    return replace(found, cases=tuple(cases))


@dataclass(frozen=True, slots=True)
class Opened:
    """The time until all parts are drawn, and the part of it that the page ran on a processor."""

    wall_ms: float
    cpu_ms: float


def open_page(browser: Browser, page: Path) -> Opened:
    with browser.new_context() as context:
        tab = context.new_page()
        tab.set_default_timeout(LIMIT_MS)
        tools = context.new_cdp_session(tab)
        tools.send("Performance.enable", {"timeDomain": "threadTicks"})
        started = time.monotonic()
        tab.goto(page.as_uri())
        tab.wait_for_function("document.documentElement.dataset.state")
        wall_ms = 1e3 * (time.monotonic() - started)
        metrics = tools.send("Performance.getMetrics")["metrics"]
        (cpu_s,) = (each["value"] for each in metrics if each["name"] == "TaskDuration")
        return Opened(wall_ms, 1e3 * cpu_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--times", type=int, default=5)
    asked = parser.parse_args()
    chromium = os.environ.get("MODELPERF_CHROMIUM") or shutil.which("chromium")
    if chromium is None:
        sys.exit("no chromium in PATH, and MODELPERF_CHROMIUM is not set")
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        folder = Path(made)
        found = compare_chains(folder)
        print(f"{len(found.cases[0].layers)} layers in each case")
        pages = []
        for count in (1, asked.cases):
            page = folder / f"{count}.html"
            started = time.process_time()
            page.write_text(render_comparison_page(with_cases(found, count), COMMAND_WORDING))
            seconds = time.process_time() - started
            print(f"{count} cases: {page.stat().st_size / 1e6:.1f} MB, written in {seconds:.1f} s")
            pages.append(page)
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        rows = [[open_page(browser, page) for page in pages] for _ in range(asked.times)]
        browser.close()
    for what in ("wall_ms", "cpu_ms"):
        found = [[getattr(each, what) for each in row] for row in rows]
        small, large = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{what}: {small:.0f} and {large:.0f}, {large / small:.2f} times as much")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")


if __name__ == "__main__":
    main()
