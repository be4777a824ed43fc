"""Records that show their report in a notebook, by the method that Jupyter asks for."""

from __future__ import annotations

from functools import singledispatch

from msgspec import Struct


@singledispatch
def report_as_html(record: object) -> str | None:  # noqa: ARG001  # the registered ones read it
    """The report of a record as HTML; None if nothing was registered to render its type."""
    return None


class Shown(Struct, frozen=True):
    """A record that a notebook shows as its report."""

    def _repr_html_(self) -> str | None:
        return report_as_html(self)
