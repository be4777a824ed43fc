"""The web address of the documentation.

The plugin imports this module in every pytest run of every user, so it defines next to nothing.
"""

SITE = "https://pytest-modelperf.github.io/pytest-modelperf/"


def page_url(name: str) -> str:
    """Return the address of a page of docs/."""
    return f"{SITE}{name}/"
