"""Where the pages about this package can be opened.

The plugin imports this in every run of every user, so it defines next to nothing.
"""

SITE = "https://pytest-modelperf.github.io/pytest-modelperf/"


def page_url(name: str) -> str:
    """The address of a page of docs/."""
    return f"{SITE}{name}/"
