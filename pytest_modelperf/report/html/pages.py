"""A page for each kind of result. `made` is when it was measured, where that is to be said."""

from __future__ import annotations

import datetime as dt

from pytest_modelperf.machine_facts import MachineFacts
from pytest_modelperf.outcomes import RunReport
from pytest_modelperf.records import Profile
from pytest_modelperf.report.html.overviews import (
    comparison_overview,
    profile_overview,
    run_overview,
    sweep_overview,
)
from pytest_modelperf.report.html.page_data import (
    comparison_data,
    profile_data,
    run_data,
    sweep_data,
    whatif_data,
)
from pytest_modelperf.report.html.render import render_page
from pytest_modelperf.report.html.whatif_overview import whatif_overview
from pytest_modelperf.sweeps import Sweep
from pytest_modelperf.variants import WhatIf
from pytest_modelperf.verdicts import Comparison


def render_profile_page(profile: Profile, *, made: dt.datetime | None = None) -> str:
    return render_page(profile_data(profile), profile_overview(profile, made))


def render_comparison_page(
    comparison: Comparison,
    *,
    machine: MachineFacts | None = None,
    made: dt.datetime | None = None,
) -> str:
    """The machine is that which both models ran on, where it is known."""
    return render_page(comparison_data(comparison), comparison_overview(comparison, machine, made))


def render_sweep_page(sweep: Sweep, *, made: dt.datetime | None = None) -> str:
    return render_page(sweep_data(sweep), sweep_overview(sweep, made))


def render_whatif_page(whatif: WhatIf, *, made: dt.datetime | None = None) -> str:
    return render_page(whatif_data(whatif), whatif_overview(whatif, made))


def render_run_page(report: RunReport) -> str:
    return render_page(run_data(report), run_overview(report))
