"""Two sides that run in turn: in one worker if they can share it, otherwise in two."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import chain
from typing import Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from pytest_modelperf.errors import MeasureError
from pytest_modelperf.graph.shape_rules import total
from pytest_modelperf.profiler.measurements import Block, Load, Noise
from pytest_modelperf.profiler.sampling.worker_bench import Rig
from pytest_modelperf.stats.parts import PartRound, part_share
from pytest_modelperf.stats.records import Mix

BEFORE: Final = "before"
AFTER: Final = "after"
PairSide: TypeAlias = Literal["before", "after"]

_Made = TypeVar("_Made")

# Inferences of one worker before the other one runs. Each switch costs a message, which takes as
# long as a fast inference.
_CHUNK = 8
# Parts of more than this share of the model vary as much as the whole.
_LARGEST_SHARE = 1 / 3


@contextmanager
def failing_as(side: PairSide) -> Iterator[None]:
    try:
        yield
    except MeasureError as error:
        error.side = side
        raise


class SharedDuet(Struct):
    """Both sides in one worker. In each turn both run one inference.

    The rigs differ by their side. Parts whose share of the model is too large in all blocks of the
    first round are dropped after it, and `too_large` is that share.
    """

    before: Rig
    after: Rig
    rounds: int = 0
    blocks: int = 0
    too_large: float | None = None
    _shares: list[float] = field(default_factory=list)

    def open(self) -> tuple[Load, Load]:
        """Load both sides. In the next round the other one is loaded first."""
        self.rounds += 1
        if self.rounds == 2 and self._shares and min(self._shares) > _LARGEST_SHARE:
            self.too_large = min(self._shares)
            self.before.parts = self.after.parts = ()
        return _open_in_turn(self.rounds, self.before, self.after)

    def take(self, count: int, max_ns: int) -> tuple[Block, Block]:
        self.blocks += 1
        sides = (self.before.side, self.after.side)
        parts = {rig.side: rig.parts for rig in (self.before, self.after) if rig.parts}
        try:
            before, after = self.before.blocks(sides, count, max_ns, seed=self.blocks, parts=parts)
        except MeasureError as error:
            error.side = self._find_failing()
            raise
        # The first inference of a session is not typical.
        if parts and self.blocks > 1 and self.rounds == 1:
            made = PartRound((before, after), before.parts, after.parts)
            self._shares.append(part_share([made]))
        return before, after

    def _find_failing(self) -> PairSide | None:
        """Return the only side that fails alone. None if both do, as after the worker is lost."""
        sides: tuple[tuple[PairSide, Rig], ...] = ((BEFORE, self.before), (AFTER, self.after))
        failing = [side for side, rig in sides if _fails(rig)]
        return failing[0] if len(failing) == 1 else None

    def close(self) -> None:
        self.before.close()
        self.after.close()


def _fails(rig: Rig) -> bool:
    try:
        rig.take(1, 1)
    except MeasureError:
        return True
    return False


def _open_in_turn(round_number: int, before: Rig, after: Rig) -> tuple[Load, Load]:
    def open_as(side: PairSide, rig: Rig) -> Load:
        with failing_as(side):
            (load,) = rig.open()
        return load

    return _in_turn(round_number, lambda: open_as(BEFORE, before), lambda: open_as(AFTER, after))


def _in_turn(
    round_number: int, before: Callable[[], _Made], after: Callable[[], _Made]
) -> tuple[_Made, _Made]:
    """Return the results of both calls. In every other round `after` is called first."""
    # A fast model runs 1 % faster in the session that is loaded second.
    if round_number % 2:
        first = before()
        return first, after()
    second = after()
    return before(), second


StartRig = Callable[[], AbstractContextManager[Rig]]


class SplitDuet(Struct):
    """Each side in a worker of its own. In each turn both run some inferences.

    Two processes differ more than two sessions of one process, so each round has new processes.
    """

    start_before: StartRig
    start_after: StartRig
    rounds: int = 0
    choose: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311  # an order
    _stack: ExitStack = field(default_factory=ExitStack)
    _rigs: tuple[Rig, ...] = ()

    def open(self) -> tuple[Load, Load]:
        """Start both sides and load them. In the next round the other one is first."""
        self.rounds += 1
        before, after = self._rigs = _in_turn(
            self.rounds,
            lambda: self._stack.enter_context(self.start_before()),
            lambda: self._stack.enter_context(self.start_after()),
        )
        for rig in self._rigs:
            rig.opened = self.rounds - 1
        return _open_in_turn(self.rounds, before, after)

    def take(self, count: int, max_ns: int) -> tuple[Block, Block]:
        parts: tuple[list[Block], list[Block]] = ([], [])
        left_ns, done = max_ns, 0
        while done < count and (left_ns > 0 or not done):
            turns = min(_CHUNK, count - done)
            next_step = self._rigs[0].next_step
            order = [0, 1]
            self.choose.shuffle(order)
            # The second side runs as often as the first one did in its time.
            for side in order:
                with failing_as(AFTER if side else BEFORE):
                    (block,) = self._rigs[side].take(turns, max(left_ns, 1))
                turns = len(block.times_ns)
                parts[side].append(block)
                left_ns -= sum(block.times_ns)
            shortest = min(len(parts[side][-1].times_ns) for side in order)
            for side in order:
                parts[side][-1] = _first(parts[side][-1], shortest)
            done += shortest
            # A side that ran more often goes back to the step of the other.
            for rig in self._rigs:
                rig.go_to_step(next_step + shortest)
        before, after = (_joined(blocks) for blocks in parts)
        return before, after

    def close(self) -> None:
        self._stack.close()


def _first(block: Block, count: int) -> Block:
    starts_ns = None if block.starts_ns is None else block.starts_ns[:count]
    mix = None if block.mix is None else block.mix.turned(0, count)
    return replace(block, times_ns=block.times_ns[:count], starts_ns=starts_ns, mix=mix)


def _joined(blocks: Sequence[Block]) -> Block:
    starts_ns = [block.starts_ns for block in blocks if block.starts_ns is not None]
    noises = [asdict(block.noise) for block in blocks]
    noise: dict[str, Any] = {name: total(*(each[name] for each in noises)) for name in noises[0]}
    return Block(
        times_ns=tuple(ns for block in blocks for ns in block.times_ns),
        noise=Noise(**noise),
        starts_ns=tuple(chain.from_iterable(starts_ns)) if len(starts_ns) == len(blocks) else None,
        first_step=blocks[0].first_step,
        mix=_joined_mix([block.mix for block in blocks if block.mix is not None]),
        tick_ns=max(block.tick_ns for block in blocks),
    )


def _joined_mix(mixes: Sequence[Mix]) -> Mix | None:
    if not mixes:
        return None
    return Mix(mixes[0].members, tuple(chain.from_iterable(mix.turns for mix in mixes)))
