"""Every kind of page can be read: by a screen reader, at any width, in both themes, on paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from pytest_modelperf.bisect.records import Bisect
from pytest_modelperf.bisect.report import bisect_report
from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.history.report import history_report
from pytest_modelperf.profiler.doctor.records import Checkup, Outlook
from pytest_modelperf.profiler.doctor.report import checkup_report
from pytest_modelperf.profiler.records import Case, Outcome
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.sweep.records import Sweep, SweepPoint
from pytest_modelperf.tuning.records import TunedCase, Tuning
from pytest_modelperf.tuning.report import tuning_report
from tests.bisect.test_reports import bisected
from tests.profiler.doctor.test_document import CHECKUP
from tests.report.pages import sample_data
from tests.report.pages.browser import OpenPage
from tests.report.pages.conftest import render_data, without_charts
from tests.support.bisects import Traits
from tests.support.comparisons import FASTER, SLOWER, compared
from tests.support.histories import make_case, make_history
from tests.support.profiles import MACHINE, measured_cases
from tests.support.recorded_spans import recorded_spans
from tests.support.rendered import (
    render_comparison_page,
    render_profile_page,
    render_run_page,
    render_sweep_page,
    render_trace_page,
)
from tests.support.run_reports import ALL, outcome, run
from tests.support.sweeps import make_configuration, make_point, make_side, make_sweep
from tests.support.tunings import make_tuned_case, make_tuning, nothing_helps
from tests.support.whatifs import make_case as make_whatif_case
from tests.support.whatifs import make_layers, make_whatif, render_whatif_page

if TYPE_CHECKING:
    from playwright.sync_api import Page, ViewportSize


def _sweep() -> Sweep:
    found = [make_configuration(batch, 1, streams) for batch in (1, 4) for streams in (1, 2)]
    before, after = (
        make_side(
            name,
            [make_point(each, ms * each.case.batch_size) for each in found[1:]]
            + [SweepPoint(configuration=found[0], outcome=Outcome.FAILED, reason=f"no {NAME}")],
        )
        for name, ms in (("old.onnx", 2.0), ("new.onnx", 3.0))
    )
    return make_sweep(before, after)


NAME = f"models/{'a_long_name_of_a_model_' * 5}.onnx"


def _bisect() -> Bisect:
    return replace(bisected([2.0] * 5 + [2.2] * 4, traits=Traits(failing={"1.4"})), model=NAME)


def _tuning() -> Tuning:
    failed = TunedCase(case=Case(8, 2), failure=f"{NAME} does not load")
    tuning = make_tuning(cases=(failed, make_tuned_case(), nothing_helps()))
    return replace(tuning, model=replace(tuning.model, name=NAME))


def _checkups() -> tuple[Checkup, ...]:
    noisy = (Outlook(rounds=6, seconds=10.0, change=0.06),)
    return CHECKUP, replace(CHECKUP, cores=2, outlook=noisy)


PAGES: Mapping[str, Callable[[], str]] = {
    "profile": lambda: render_profile_page(measured_cases()),
    "compare": lambda: render_comparison_page(compared(SLOWER, FASTER), machine=MACHINE),
    "run": lambda: render_run_page(run(*map(outcome, ALL))),
    "sweep": lambda: render_sweep_page(_sweep()),
    "bisect": lambda: render_page(bisect_report(_bisect(), COMMAND_WORDING)),
    "tune": lambda: render_page(tuning_report(_tuning())),
    "doctor": lambda: render_page(checkup_report(MACHINE, _checkups())),
    "whatif": lambda: render_whatif_page(make_whatif(make_whatif_case(make_layers()))),
    "history": lambda: render_page(history_report(make_history(make_case()), allowed_drift=0.5)),
    "trace": lambda: render_trace_page(recorded_spans()),
    # All parts that scripts draw, of two sides.
    "parts": lambda: render_data(sample_data.comparison()),
}
WIDTHS = (1400, 700, 390)
# The sizes of text on a page, in pixels, of which the last is that of the body.
SCALE = frozenset({24.0, 20.8, 18.4, 16.0, 14.0, 12.48, 15.0})
# Elements out of sight are laid out, too, so that nothing has its former width.
OPEN = """
document.querySelectorAll("details:not(.pick)").forEach((d) => {
  d.open = true;
  d.style.contentVisibility = "visible";
});
"""
CLOSE_MENUS = "document.querySelectorAll('.pick').forEach((d) => { d.open = false })"
OPEN_MENUS = "document.querySelectorAll('.pick').forEach((d) => { d.open = true })"

# The elements that reach beyond the window although nothing cuts them, verdicts that are cut, and
# boxes that scroll sideways without a table, code or the list of parts in them.
TOO_WIDE = """
() => {
  const view = document.documentElement.clientWidth;
  const all = [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility());
  const name = (e) => `${e.tagName.toLowerCase()}.${[...e.classList].join(".")}`;
  const isFree = (e) => {
    for (let p = e.parentElement; p; p = p.parentElement) {
      if (getComputedStyle(p).overflowX !== "visible") return false;
    }
    return true;
  };
  const isCut = (e) => e.scrollWidth > e.clientWidth + 1;
  const mayScroll = (e) => e.matches("pre, #parts ul, .graph-window") || e.querySelector("table");
  return [
    ...all.filter((e) => !(e instanceof SVGElement) && e.getBoundingClientRect().right > view + 1)
      .filter(isFree).map((e) => `wide: ${name(e)}`),
    ...all.filter((e) => e.matches(".pill") && (isCut(e) || e.getClientRects().length > 1))
      .map((e) => `cut: ${e.textContent}`),
    ...all.filter((e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX) && isCut(e))
      .filter((e) => !mayScroll(e)).map((e) => `scrolls: ${name(e)}`),
    ...(document.documentElement.scrollWidth > view ? ["the page scrolls"] : []),
  ];
}
"""
# The verdicts that a reader does not see without scrolling.
OUT_OF_SIGHT = """
() => [...document.querySelectorAll(".pill, details.case .scroll:first-of-type td.text:last-child")]
  .filter((e) => e.closest(".scroll") && e.textContent.trim())
  .filter((e) => {
    const { right } = e.closest(".scroll").getBoundingClientRect();
    return e.getBoundingClientRect().right > right + 1;
  })
  .map((e) => e.textContent)
"""
# The tables of figures that are wider than the page.
SCROLLED_TABLES = """
() => [...document.querySelectorAll("#overview .scroll")]
  .filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1)
  .map((e) => e.textContent.trim().slice(0, 80))
"""
SIZES = """
() => {
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest("svg, script, style")) continue;
    if (element.checkVisibility()) {
      found.set(parseFloat(getComputedStyle(element).fontSize), element.outerHTML.slice(0, 120));
    }
  }
  return [...found];
}
"""
# The parts that would be on every sheet of paper, or be hidden or cut there.
ON_PAPER = """
() => {
  const style = (e) => getComputedStyle(e);
  return [
    ...[...document.querySelectorAll("body *")].filter((e) => e.checkVisibility())
      .filter((e) => ["sticky", "fixed"].includes(style(e).position))
      .map((e) => `sticky: ${e.tagName}.${e.className}`),
    ...[...document.querySelectorAll("details.case:not([open])")].map((e) => `closed: ${e.id}`),
    ...[...document.querySelectorAll("table")]
      .filter((e) => e.getBoundingClientRect().width > document.body.clientWidth + 1)
      .map((e) => `cut: a table of ${e.closest("section").id}`),
    `${style(document.body).color} on ${style(document.body).backgroundColor}`,
  ];
}
"""


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_fits_every_width_and_paper(open_page: OpenPage, kind: str) -> None:
    page = open_page(without_charts(PAGES[kind]()), viewport=_viewport(WIDTHS[0]))
    page.evaluate(OPEN)
    sizes = {round(size, 2): example for size, example in page.evaluate(SIZES)}
    assert {size: example for size, example in sizes.items() if size not in SCALE} == {}
    found: list[str] = []
    for width in WIDTHS:
        page.set_viewport_size(_viewport(width))
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            found += [f"{width}, {scheme}: {each}" for each in page.evaluate(TOO_WIDE)]
            page.evaluate(OPEN_MENUS)
            found += [f"{width}, menus: {each}" for each in page.evaluate(TOO_WIDE)]
            page.evaluate(CLOSE_MENUS)
    found += [f"scrolls on a phone: {table}" for table in page.evaluate(SCROLLED_TABLES)]
    page.set_viewport_size(_viewport(700))
    found += [f"out of sight: {word}" for word in page.evaluate(OUT_OF_SIGHT)]
    assert found == []
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(ON_PAPER) == ["rgb(0, 0, 0) on rgb(255, 255, 255)"]
    page.evaluate("dispatchEvent(new Event('afterprint'))")


def test_a_phone_and_paper_have_the_whole_line_of_a_failure(open_page: OpenPage) -> None:
    """A long line ends with what to do about it."""
    failed = replace(SLOWER, metrics=(), failure=f"{'no kernel ' * 30}: give its library")
    page = open_page(without_charts(render_run_page(run(outcome(failed)))), viewport=_viewport(390))
    cut = """() => {
      const failure = document.querySelector("pre.failure");
      return failure.scrollWidth > failure.clientWidth;
    }"""
    assert not page.evaluate(cut)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert not page.evaluate(cut)
    page.evaluate("dispatchEvent(new Event('afterprint'))")


@pytest.mark.parametrize("kind", PAGES)
def test_axe_finds_nothing(open_page: OpenPage, kind: str) -> None:
    """The rules of axe-core, which has colours to look at in each theme, and menus when open."""
    axe = pytest.importorskip("axe_playwright_python.base", reason="axe is not installed")
    page = open_page(without_charts(PAGES[kind]()), viewport=_viewport(WIDTHS[0]))
    page.evaluate(OPEN)
    page.evaluate(axe.AXE_SCRIPT)
    assert _findings(page, "document", {}) == []
    page.emulate_media(color_scheme="dark")
    assert _findings(page, "document", {"runOnly": ["color-contrast"]}) == []
    if page.locator(".choices").count():
        page.evaluate(OPEN_MENUS)
        assert _findings(page, "'.choices'", {}) == []


def _findings(page: Page, context: str, options: Mapping[str, Any]) -> list[str]:
    """Each violation with its element and what to do about it."""
    script = f"(options) => axe.run({context}, options)"
    found = page.evaluate(script, {"resultTypes": ["violations"], **options})
    return [
        f"{rule['id']}: {node['html'][:200]}: {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]


def _viewport(width: int) -> ViewportSize:
    return {"width": width, "height": 900}
