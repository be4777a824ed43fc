"""Results as one HTML file: figures to read, charts and tables to explore."""

from pytest_modelperf.report.html.extra import check_html_extra
from pytest_modelperf.report.html.pages import (
    render_comparison_page,
    render_profile_page,
    render_run_page,
    render_sweep_page,
    render_whatif_page,
)

__all__ = [
    "check_html_extra",
    "render_comparison_page",
    "render_profile_page",
    "render_run_page",
    "render_sweep_page",
    "render_whatif_page",
]
