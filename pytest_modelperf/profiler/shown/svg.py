"""The graph of a profile as an SVG picture: of its first case that knows it."""

from __future__ import annotations

from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.shown.page_graph import case_picture
from pytest_modelperf.profiler.shown.page_latency import engine_name
from pytest_modelperf.report.picture.svg import render_svg

_NS_PER_MS = 1e6


def render_profile_svg(profile: Profile) -> str:
    """The picture; if no case has one, the reason of the first in its place."""
    pictures = [(case, case_picture(case)) for case in profile.cases]
    case, picture = next((each for each in pictures if each[1].boxes), pictures[0])
    facts = [case.case.id]
    if case.measured is not None:
        facts.append(f"median {case.measured.latency.median_ns / _NS_PER_MS:.4g} ms")
        facts.append(engine_name(case.measured.engine))
    return render_svg(picture, profile.model.name, ", ".join(facts))
