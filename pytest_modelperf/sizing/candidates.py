"""The sizes to try for each open dimension, most likely first."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import MisfitError
from pytest_modelperf.graph.binding import DeclaredInput, is_bare_image
from pytest_modelperf.graph.structure import Graph
from pytest_modelperf.profiler.inputs.made import find_uses
from pytest_modelperf.sizing.axes import AxisUses, SizeRange, follow_axis

# Usual sizes of model inputs, in the order in which they are tried.
_USUAL = (64, 224, 320, 512, 640)
_USUAL_OF_IMAGES = (224, 320, 512, 640, 64)
# A signal with thousands of elements is chosen to fill this many windows.
WINDOWS = 64
# A step this large may be the size of an input that one window covers.
_LARGE_STEP = 32
# Multiples of a step that are tried after the usual sizes.
_MULTIPLES = 16
_RARE = (128, 256, 1024, 2048, 4096, 16_384)
_MASK = re.compile(r"mask", re.IGNORECASE)
# The latents of a diffuser have four channels, and are smaller than images.
_IMAGE_RANK, _MOST_CHANNELS = 4, 3

Places = Sequence[tuple[str, int]]


class Candidate(Struct, frozen=True):
    """A size to try, or with `beside` the size to add to that of the cache of this name.

    `reason` is a clause. With `is_guess`, the model shows no reason for this size rather than for
    another one.
    """

    size: int
    reason: str
    beside: str = ""
    is_guess: bool = False


class OpenDim(Struct, frozen=True):
    """An open dimension with candidates. For the batch, the first is replaced last."""

    name: str
    candidates: tuple[Candidate, ...]
    is_batch: bool = False


def open_dims_of(
    graph: Graph, inputs: Sequence[DeclaredInput], open_places: Mapping[str, Places], batch: int
) -> tuple[OpenDim, ...]:
    """Return the candidates of each open dimension of a `graph` with open shapes."""
    uses = find_uses(graph)
    tensors = {tensor.name: tensor for tensor in graph.inputs}
    declared = {each.name: each for each in inputs}
    wants = {
        name: _joined([follow_axis(tensors[own], axis, uses) for own, axis in places])
        for name, places in open_places.items()
    }
    caches = [name for name, want in wants.items() if want.cache_of]
    found = []
    for name, places in open_places.items():
        own = tuple(_sizes(wants[name], [declared[each] for each, _ in places]))
        if caches and name not in caches:
            own = _with_cache(own, caches[0], wants[caches[0]].cache_of, places)
        is_batch = all(_is_batch(declared[each], axis) for each, axis in places)
        if is_batch:
            own = (Candidate(batch, "the batch size of the other inputs"), *own)
        found.append(OpenDim(name, own, is_batch))
    return tuple(found)


def choices(dims: Sequence[OpenDim]) -> Iterator[Mapping[str, Candidate]]:
    """Yield distinct choices of a candidate for each dimension, most likely first."""
    # All dimensions begin with their first, second, third candidate together, because equal sizes
    # fit most often. After that they change one by one.
    seen = set()
    longest = max((len(each.candidates) for each in dims), default=1)
    together = (
        tuple(0 if d.is_batch else min(rank, len(d.candidates) - 1) for d in dims)
        for rank in range(longest)
    )
    # There may be too many to list.
    for ranks in chain(together, _one_by_one([len(each.candidates) for each in dims])):
        if ranks not in seen:
            seen.add(ranks)
            yield _chosen(dims, ranks)


def choices_told(
    misfit: MisfitError, dims: Sequence[OpenDim], chosen: Mapping[str, Candidate]
) -> Iterator[Mapping[str, Candidate]]:
    """Yield the choices to try after one that conflicts with another size at an operator."""
    # They use that size. A traced model stores some sizes as constants, and shows them only in such
    # a conflict. Sizes that follow from the chosen ones, such as those after strides, show nothing.
    names = [each.name for each in dims if not each.is_batch]
    if {chosen[name].size for name in names}.isdisjoint(misfit.sizes):
        return
    for size in filter(None, misfit.sizes):
        found = Candidate(size, f"{misfit.where} has this size at another input")
        for changed in (names, *([name] for name in names)):
            others = (name for name in changed if chosen[name].size != size)
            yield {**chosen, **dict.fromkeys(others, found)}


def _chosen(dims: Sequence[OpenDim], ranks: Sequence[int]) -> Mapping[str, Candidate]:
    chosen = {d.name: d.candidates[rank] for d, rank in zip(dims, ranks, strict=True)}
    return {
        name: replace(each, size=each.size + chosen[each.beside].size) if each.beside else each
        for name, each in chosen.items()
    }


def _one_by_one(lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
    first = (0,) * len(lengths)
    waiting, seen, number = [(0, 0, first)], {first}, count(1)
    while waiting:
        total, _, ranks = heapq.heappop(waiting)
        yield ranks
        for at, rank in enumerate(ranks):
            further = (*ranks[:at], rank + 1, *ranks[at + 1 :])
            if rank + 1 < lengths[at] and further not in seen:
                seen.add(further)
                heapq.heappush(waiting, (total + 1, next(number), further))


def _joined(uses: Sequence[AxisUses]) -> AxisUses:
    steps: dict[int, str] = {}
    for each in reversed(uses):
        steps |= each.steps
    return AxisUses(
        step=max(each.step for each in uses),
        least=max(each.least for each in uses),
        steps=steps,
        wishes=[wish for each in uses for wish in each.wishes],
        cache_of=next((each.cache_of for each in uses if each.cache_of), ""),
    )


def _sizes(want: AxisUses, inputs: Sequence[DeclaredInput]) -> Iterator[Candidate]:
    seen: set[int] = set()
    for each in _all_sizes(want, _is_image(inputs) and not want.cache_of):
        if each.size not in seen:
            seen.add(each.size)
            yield each


def _all_sizes(want: AxisUses, is_image: bool) -> Iterator[Candidate]:  # noqa: FBT001  # private
    usual = _USUAL_OF_IMAGES if is_image else _USUAL
    for wish in want.wishes:
        for size in _inside(wish.sizes, wish.step, usual):
            yield Candidate(size, wish.reason)
    strides = want.steps.get(want.step, "")
    if want.step > min(usual) and not is_image:
        size = _rounded(want.least + (WINDOWS - 1) * want.step, want.step)
        yield _guess(size, f"{strides}; it holds about {WINDOWS} windows")
    first, *others = usual
    for size in (first, *([want.step] if want.step >= _LARGE_STEP else ()), *others):
        rounded = _rounded(max(size, want.least), want.step)
        fits = f"a usual size; {strides}" if strides else "a usual size"
        enough = strides or f"its windows take {want.least} or more"
        yield _guess(rounded, fits if rounded == size else enough)
    for step, reason in sorted(want.steps.items()):
        for size in usual:
            yield _guess(_rounded(max(size, want.least), step), reason)
        for factor in range(1, _MULTIPLES + 1):
            yield _guess(_rounded(max(factor * step, want.least), step), reason)
    for size in (*range(1, _MULTIPLES + 1), *_RARE):
        yield _guess(size, "tried one after the other")


def _guess(size: int, reason: str) -> Candidate:
    return Candidate(size, reason, is_guess=True)


def _inside(sizes: SizeRange, step: int, usual: Sequence[int]) -> Iterator[int]:
    fitting = [size for size in usual if sizes.low <= size <= sizes.high and size % step == 0]
    yield from fitting
    multiple = sizes.high // step * step
    if multiple >= sizes.low:
        yield multiple
    yield sizes.low
    yield sizes.high


def _rounded(size: int, step: int) -> int:
    return -(-size // step) * step


def _is_image(inputs: Sequence[DeclaredInput]) -> bool:
    return all(
        is_bare_image(dims)
        or (
            len(dims) == _IMAGE_RANK
            and any(isinstance(dim, int) and dim <= _MOST_CHANNELS for dim in dims[1:])
        )
        for dims in (each.dims or () for each in inputs)
    )


def _is_batch(declared: DeclaredInput, axis: int) -> bool:
    return axis == (declared.batch_axis or 0) and len(declared.dims or ()) > 1


def _with_cache(
    own: Sequence[Candidate], cache: str, concat: str, places: Places
) -> tuple[Candidate, ...]:
    """Return the candidates, alone and plus the size of the cache, because masks cover both."""
    longer = [replace(each, reason=f"{concat} adds it to {cache}", beside=cache) for each in own]
    is_mask = any(_MASK.search(name) for name, _ in places)
    return (*longer, *own) if is_mask else (*own, *longer)
