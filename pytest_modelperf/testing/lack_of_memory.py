"""Memory that ran out, as one line: pytest has none left for a traceback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pytest_modelperf.errors import ModelPerfError, find_lack_of_memory


@contextmanager
def lack_of_memory_told(
    show: Callable[[ModelPerfError], BaseException] = lambda error: error,
) -> Iterator[None]:
    """Raise what `show` makes of the error to show, if memory runs out within."""
    try:
        yield
    except (MemoryError, ImportError) as error:
        lack = find_lack_of_memory(error)
        if lack is None:
            raise
        raise show(lack) from None
