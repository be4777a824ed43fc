"""The types of the arguments of the fixture and the markers, written as a module of the package.

`make schemas` writes it, because an editor and mypy read types and no definitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_modelperf.comparing.budgets import COMPANIONS, FIGURES
from pytest_modelperf.spec import case_words
from pytest_modelperf.spec.case_definitions import CASE_SETTINGS, THE_MODEL
from pytest_modelperf.spec.kinds import KINDS
from pytest_modelperf.spec.run_definitions import Place, Setting

MODULE = Path(case_words.__file__)
_HEAD = '''\
"""The arguments of the fixture and of the markers, as types: written by `make schemas`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Literal, TypedDict


class CaseWords(TypedDict, total=False):
    """The arguments of `perf_case` besides the model, and of a call of the fixture."""

'''
_BUDGETS = '''

class BudgetWords(TypedDict, total=False):
    """The arguments of `perf_budget`."""

'''


def module_text(of_case: Sequence[Setting] = CASE_SETTINGS) -> str:
    words = [each for each in of_case if each.stands_in(Place.CALL) and each is not THE_MODEL]
    cases = _lines((each.word, f"{KINDS[each.kind].written} | None") for each in words)
    limits = [(word, "float | str | Mapping[str, float | str]") for word in FIGURES]
    companions = [(word, "float | str") for word in COMPANIONS]
    return _HEAD + cases + _BUDGETS + _lines((*limits, *companions))


def _lines(words: Iterable[tuple[str, str]]) -> str:
    return "".join(f"    {name}: {written}\n" for name, written in words)
