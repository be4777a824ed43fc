"""The version of this package, and the web address of its documentation.

The plugin imports this module in every pytest run of every user, so it defines little.
"""

__version__ = "0.1.0"


SITE = "https://pytest-modelperf.github.io/pytest-modelperf/"


def page_url(name: str) -> str:
    """Return the address of a page of docs/."""
    return f"{SITE}{name}/"
