"""The packages that only the HTML report needs, and the error if they are missing."""

from __future__ import annotations

from importlib.util import find_spec

from pytest_modelperf.errors import UsageError

_PACKAGES = ("plotly", "jinja2")


def check_html_extra(option: str) -> None:
    """Raises UsageError if no page could be made, before anything is measured for it."""
    if any(find_spec(name) is None for name in _PACKAGES):
        raise UsageError(
            f"{option} needs {' and '.join(_PACKAGES)}: pip install 'pytest-modelperf[report]'"
        )
