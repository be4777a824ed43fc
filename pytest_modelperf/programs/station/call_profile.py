"""Read a profile of cProfile: the functions of some calls, and a tree of them.

cProfile knows the time of a function for each of its callers, but not for each call path. So the
tree divides the time of a function in proportion to the time of the calls on each path, as gprof
does.
"""

from __future__ import annotations

import cProfile
import os
import re
from types import CodeType
from typing import Any

from msgspec import Struct

from pytest_modelperf.programs.messages import CALL_PLACE, CallNode, CallProfile, FunctionTime
from pytest_modelperf.programs.station import callee
from pytest_modelperf.programs.trees import SideTree

# Calls of a function are left out of the tree if the function takes a smaller share of the time.
# The limit for display is far larger, and is applied later, because a function may be large on one
# side only.
_SMALLEST_SHARE = 0.0001
# Functions called next to the program, such as the loop of a coroutine, count only if they are
# larger.
_SMALLEST_ROOT_SHARE = 0.005
_DEEPEST = 60
_MOST_FUNCTIONS = 400
_NS_PER_S = 1e9
_BOOKKEEPING = ("_lsprof.Profiler", "time.perf_counter_ns")
_CALLER = callee.__file__
# The address in the name of a built-in method, which differs between processes.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LOCALS = "<locals>."
_OUR_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep  # noqa: PTH100, PTH120


class _Edge(Struct):
    calls: float
    total: float


class _Function:
    def __init__(self, code: CodeType | str) -> None:
        self.code = code
        self.calls = 0
        self.own = 0.0
        self.total = 0.0
        self.inner: dict[Any, _Edge] = {}

    @property
    def is_ours(self) -> bool:
        return isinstance(self.code, CodeType) and self.code.co_filename.startswith(_OUR_FOLDER)

    @property
    def calls_the_program(self) -> bool:
        return isinstance(self.code, CodeType) and self.code.co_filename == _CALLER

    @property
    def place(self) -> str:
        if isinstance(self.code, str):
            return _ADDRESS.sub("", self.code.strip("<>"))
        name = getattr(self.code, "co_qualname", self.code.co_name)
        return f"{_file_name(self.code.co_filename)}:{name.replace(_LOCALS, '')}"


def read_profile(profiler: cProfile.Profile, calls: int, tree: SideTree) -> CallProfile:
    """Return the profile of `calls` calls, per call."""
    functions: dict[Any, _Function] = {}
    for entry in profiler.getstats():
        known = functions.setdefault(_key(entry.code), _Function(entry.code))
        known.calls += entry.callcount
        known.own += entry.inlinetime
        known.total += entry.totaltime
        for inner in entry.calls or ():
            edge = known.inner.setdefault(_key(inner.code), _Edge(0, 0))
            edge.calls += inner.callcount
            edge.total += inner.totaltime
    shown = [each for each in functions.values() if not each.is_ours and not _is_bookkeeping(each)]
    shown.sort(key=lambda each: -each.own)
    return CallProfile(
        functions=tuple(_time_of(each, calls, tree) for each in shown[:_MOST_FUNCTIONS]),
        root=_Tree(functions, calls).root(),
    )


class _Tree:
    def __init__(self, functions: dict[Any, _Function], calls: int) -> None:
        self._functions = functions
        self._calls = calls
        self._smallest = 0.0

    def root(self) -> CallNode | None:
        """Return the calls of the program, or None if no time was spent in them.

        From Python 3.12 on, cProfile may miss our coroutine that calls the program. So a function
        without a caller counts as called by the program.
        """
        edges: dict[Any, _Edge] = {}
        called = {key for each in self._functions.values() for key in each.inner}
        for key, function in self._functions.items():
            if key not in called and not function.is_ours and not _is_bookkeeping(function):
                edges[key] = _Edge(function.calls, function.total)
        for function in self._functions.values():
            for key, edge in function.inner.items() if function.calls_the_program else ():
                inner = self._functions.get(key)
                if inner is not None and not inner.is_ours and not _is_bookkeeping(inner):
                    known = edges.setdefault(key, _Edge(0, 0))
                    known.calls += edge.calls
                    known.total += edge.total
        total = sum(edge.total for edge in edges.values())
        self._smallest = total * _SMALLEST_SHARE
        least = total * _SMALLEST_ROOT_SHARE
        roots = {key: edge for key, edge in edges.items() if edge.total >= least}
        inner_nodes = self._nodes(roots, 1.0, frozenset())
        if len(inner_nodes) <= 1:
            return next(iter(inner_nodes), None)
        ns = sum(node.ns for node in inner_nodes)
        return CallNode(place=CALL_PLACE, ns=ns, calls=1, inner=inner_nodes)

    def _nodes(
        self, edges: dict[Any, _Edge], scale: float, above: frozenset[Any]
    ) -> tuple[CallNode, ...]:
        found: list[CallNode] = []
        for key, edge in edges.items():
            time = edge.total * scale
            function = self._functions.get(key)
            # The time of a recursive call is part of the time above it.
            if function is None or key in above or _is_bookkeeping(function):
                continue
            inner: tuple[CallNode, ...] = ()
            if time >= self._smallest and len(above) < _DEEPEST:
                share = time / function.total if function.total else 0.0
                inner = self._nodes(function.inner, min(share, 1.0), above | {key})
            if function.is_ours:
                found.extend(inner)
                continue
            calls = max(round(edge.calls * scale / self._calls), 1)
            ns = round(time * _NS_PER_S / self._calls)
            found.append(CallNode(place=function.place, ns=ns, calls=calls, inner=inner))
        return tuple(sorted(found, key=lambda node: -node.ns))


def _time_of(function: _Function, calls: int, tree: SideTree) -> FunctionTime:
    code = function.code
    return FunctionTime(
        place=function.place,
        file=tree.place(code.co_filename) if isinstance(code, CodeType) else None,
        calls=round(function.calls / calls),
        own_ns=max(round(function.own * _NS_PER_S / calls), 0),
    )


def _key(code: CodeType | str) -> Any:  # noqa: ANN401  # code compares by its content, which is slow
    if isinstance(code, str):
        return code
    return code.co_filename, code.co_firstlineno, code.co_name


def _is_bookkeeping(function: _Function) -> bool:
    """Whether this is a call of our own, to read the clock or to switch the profiler off."""
    return isinstance(function.code, str) and any(name in function.code for name in _BOOKKEEPING)


def _file_name(path: str) -> str:
    folder, name = os.path.split(path)
    return f"{os.path.basename(folder)}/{name}" if name == "__init__.py" else name  # noqa: PTH119
