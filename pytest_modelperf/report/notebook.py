"""Records that show themselves in a notebook, as tables, as charts and as pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import singledispatch
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from pytest_modelperf.errors import UsageError
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import suggestion

if TYPE_CHECKING:
    import pandas as pd

    from pytest_modelperf.report.charts import BarChart
    from pytest_modelperf.report.model import Report, Sheet

T = TypeVar("T")


class Views(Struct, frozen=True):
    """The ways to look at a result: its report, and charts and tables by their names.

    The first of each is the usual one. A chart may have no bars.
    """

    report: Callable[[], Report]
    charts: Mapping[str, Callable[[], BarChart]]
    sheets: Mapping[str, Callable[[], Sheet]] = {}


@singledispatch
def views_of(record: object) -> Views | None:  # noqa: ARG001  # the registered functions read it
    """Return the views of a record, or None if no function is registered for its type."""
    return None


class Viewed:
    """A result that a notebook shows as a chart, with its report folded below."""

    __slots__ = ()

    def figure(self, of: str | None = None) -> Any:  # noqa: ANN401  # of a library without types
        """Return a chart, such as `"layers"`, as a figure of plotly or matplotlib.

        By default the first. Raises UsageError for another name, which lists all, or if neither
        library is installed.
        """
        from pytest_modelperf.report.charts import make_figure

        return make_figure(named_view(self._views().charts, "chart", of)())

    def html(self) -> str:
        """Return the page for a browser, as `--html` writes it.

        Raises UsageError if what it needs is not installed.
        """
        from pytest_modelperf.report.html.render import check_html_extra, render_page

        report = self._views().report()
        check_html_extra(
            "html()", needs_plotly=report.drawn is not None and report.drawn.drawings.needs_plotly
        )
        return render_page(report)

    def _repr_html_(self) -> str | None:
        """Return the first chart with bars above the folded report, or None without views."""
        try:
            views = self._views()
        except UsageError:
            return None
        # Imported here: every module of records imports this one, and few records are shown in a
        # notebook.
        from html import escape

        from pytest_modelperf.report.charts import draw_chart
        from pytest_modelperf.report.page import MarkupStyle
        from pytest_modelperf.report.render import render_report

        made = (make() for make in views.charts.values())
        first = next((chart for chart in made if chart.names), None)
        report = views.report()
        text = render_report(report, MarkupStyle())
        if first is None:
            return text
        subject = ": ".join(filter(None, (report.title, report.headline)))
        folded = f"<details><summary>{escape(printable(subject))}</summary>{text}</details>"
        return f"<div>{draw_chart(first)}{folded}</div>\n"

    def _views(self) -> Views:
        """Return the views. Raise UsageError if there are none yet."""
        raise NotImplementedError


class Shown(Viewed, Struct, frozen=True):
    """A record with views and tables.

    `pytest_modelperf.api` knows the views of all records, so import it first.
    """

    def frame(self, of: str | None = None) -> pd.DataFrame:
        """Return a table as a data frame of pandas, such as `"layers"`. By default the first.

        Raises UsageError for another name, which lists all, or if pandas is not installed.
        """
        from pytest_modelperf.report.charts import make_frame

        return make_frame(named_view(self._views().sheets, "table", of)())

    def _views(self) -> Views:
        views = views_of(self)
        if views is None:
            raise UsageError(
                f"a {type(self).__name__} has no table and no chart yet: import "
                "pytest_modelperf.api first."
            )
        return views


def named_view(known: Mapping[str, T], what: str, name: str | None) -> T:
    """Return the view of that name, by default the first. Raise UsageError for another name."""
    if name is None:
        name = next(iter(known))
    if name not in known:
        raise UsageError(
            f"there is no {what} {printable(str(name))!r}."
            f"{suggestion(str(name), known)} There are: {', '.join(known)}."
        )
    return known[name]
