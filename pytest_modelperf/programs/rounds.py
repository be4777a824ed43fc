"""Take the rounds of a program: fresh stations of both sides, whose calls are timed in turn."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from pytest_modelperf.profiler.sampling.duet import AFTER, BEFORE, failing_as
from pytest_modelperf.profiler.worker.timing import Clock
from pytest_modelperf.programs.messages import CallProfile, Reached, Turn

_NS_PER_S = 1_000_000_000
# The time of one side's calls before the other side's turn. A message takes as long as a call of
# 0.1 ms, so a turn is much longer.
_ORDER_NS = 20_000_000
# Times differ more between processes than within one, so the calls of a round take only this share
# of the time of its start, within the limits below.
_SHARE_OF_START = 0.5
_SHORTEST_ROUND_NS = 600_000_000
_LONGEST_ROUND_NS = 3_000_000_000
# The fewest calls of a side in a round, and the fewest if a call takes `_SLOW_NS` or more.
_FEWEST_TURNS, _FEWEST_SLOW_TURNS = 5, 2
_SLOW_NS = 1_000_000_000
_MOST_TURNS = 400
# Calls that only show how long one takes.
_PROBES = 3


class TimesCalls(Protocol):
    """The methods of a station that a round needs."""

    def call(self, count: int, max_ns: int) -> tuple[Turn, ...]: ...

    def profile(self, calls: int) -> CallProfile: ...

    @property
    def peak_bytes(self) -> int | None: ...


class OpenPair(Struct, frozen=True):
    """Both stations of a round, which have reached the call."""

    before: TimesCalls
    after: TimesCalls
    reached: tuple[Reached, Reached]


class ProgramRound(Struct, frozen=True):
    """The calls of both sides in a round, the same number of each, and their peak memory."""

    before: tuple[Turn, ...]
    after: tuple[Turn, ...]
    reached: tuple[Reached, Reached]
    peaks_bytes: tuple[int | None, int | None] = (None, None)

    @property
    def sides(self) -> tuple[tuple[Turn, ...], tuple[Turn, ...]]:
        return self.before, self.after


class Pace(Struct, frozen=True, kw_only=True):
    """The time for rounds: `seconds` from the first start on.

    A program that is slow to start gets up to `stretch_seconds`, but not more time than
    `stretch_rounds` take.
    """

    seconds: float
    stretch_seconds: float | None = None
    stretch_rounds: int = 8
    max_rounds: int = 12


def take_rounds(
    open_pair: Callable[[], AbstractContextManager[OpenPair]],
    look: Callable[[Sequence[ProgramRound], OpenPair, bool], bool],
    pace: Pace,
    clock: Clock,
) -> tuple[ProgramRound, ...]:
    """Take rounds until they are enough or the time is over.

    After each round `look` returns whether the rounds are enough. It gets the rounds, the open
    pair, and whether no other round can follow.
    """
    order = random.Random(0)  # noqa: S311  # an order, not a secret
    begun = clock()
    taken: list[ProgramRound] = []
    lengths: list[int] = []
    while True:
        start = clock()
        with open_pair() as pair:
            started_ns = clock() - start
            taken.append(_take_round(pair, started_ns, order))
            lengths.append(clock() - start)
            is_over = _is_over(lengths, clock() - begun, pace)
            if look(taken, pair, is_over) or is_over:
                return tuple(taken)


def _is_over(lengths: Sequence[int], spent_ns: int, pace: Pace) -> bool:
    typical_ns = statistics.median(lengths)
    limit_ns = pace.seconds * _NS_PER_S
    if pace.stretch_seconds is not None:
        wanted_ns = min(pace.stretch_rounds * typical_ns, pace.stretch_seconds * _NS_PER_S)
        limit_ns = max(limit_ns, wanted_ns)
    return spent_ns + typical_ns > limit_ns or len(lengths) >= pace.max_rounds


def _take_round(pair: OpenPair, started_ns: int, order: random.Random) -> ProgramRound:
    """Take the turns of one round. The first side of each turn is random."""
    sides = (pair.before, pair.after)
    probes = [_call(sides, side, _PROBES, _SLOW_NS) for side in (0, 1)]
    one_ns = max(min(turn.wall_ns for turn in found) for found in probes)
    count = max(1, round(_ORDER_NS / max(one_ns, 1)))
    fewest = _FEWEST_SLOW_TURNS if one_ns >= _SLOW_NS else _FEWEST_TURNS
    round_ns = min(max(_SHARE_OF_START * started_ns, _SHORTEST_ROUND_NS), _LONGEST_ROUND_NS)
    turns = min(max(round(round_ns / (2 * max(one_ns, 1))), fewest), _MOST_TURNS)
    taken: tuple[list[Turn], list[Turn]] = ([], [])
    while len(taken[0]) < turns:
        asked = min(count, turns - len(taken[0]))
        first = order.randrange(2)
        found = {side: _call(sides, side, asked, _LONGEST_ROUND_NS) for side in (first, 1 - first)}
        shortest = min(len(found[0]), len(found[1]))
        for side in (0, 1):
            taken[side].extend(found[side][:shortest])
    peaks = pair.before.peak_bytes, pair.after.peak_bytes
    return ProgramRound(tuple(taken[0]), tuple(taken[1]), pair.reached, peaks)


def _call(sides: tuple[TimesCalls, TimesCalls], side: int, count: int, ns: int) -> tuple[Turn, ...]:
    with failing_as(AFTER if side else BEFORE):
        return sides[side].call(count, ns)
