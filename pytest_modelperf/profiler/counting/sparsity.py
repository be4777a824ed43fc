"""Count the zeros of the weights of a model, and find the pattern of their positions.

The result has three separate facts: how many zeros there are (`ratio`), whether they come in blocks
that a kernel can skip (`pattern`), and whether every short group holds a fixed number (`n_of_m`).

Blocks are cut from a two-dimensional view of the weight, as pruning tools do: a matrix as it is
stored, a vector as one row, and a weight of a higher rank as first axis x all others. Leading axes
of length 1 are left out. A convolution's OIHW weight is O x (I*H*W), and also O x (H*W*I), since
some tools cut blocks along the input channels of one kernel position. Blocks are aligned at 0 and
may be cut short at the edges.

If nearly all elements of a weight are zero, most small blocks are zero by chance. So a pattern
is reported only if all of these hold:

- at least the share `MIN_COVERAGE` of the zeros is in blocks that are all zero,
- at least the share `MIN_FILL` of the elements in the other blocks is nonzero,
- the probability that randomly placed zeros fill that many blocks is below `MAX_CHANCE`.
"""

from __future__ import annotations

from math import comb, lgamma, log, prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.graph.weights.notes import GROUPINGS, MAX_EXCESS
from pytest_modelperf.profiler.counting.records import Sparsity, StaticLayer, StaticProfile
from pytest_modelperf.text.escaping import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Mask: TypeAlias = npt.NDArray[np.bool_]

# Rounding alone puts 1 to 2 % of int8 weights on the zero point, too few to be useful.
DENSE_BELOW = 0.05

# 5 % of the zeros may be elsewhere, because quantizing rounds some of the kept weights to zero.
MIN_COVERAGE = 0.95

# Halfway between 1, the fill of a true block pattern, and 1/2, which blocks of twice the true size
# reach. Randomly placed zeros with enough coverage reach at most 1 / (1 + MIN_COVERAGE) = 0.51.
# Unlike the test for chance, this one does not mistake a weight with some sparser rows for a block
# pattern.
MIN_FILL = 0.75

# Small, because about thirty block shapes are tried on each of up to thousands of weights.
MAX_CHANCE = 1e-9


def add_sparsity(
    profile: StaticProfile, bound: BoundModel, known: StaticProfile | None = None
) -> StaticProfile:
    """Return the profile with the sparsity of every stored weight that a layer multiplies with."""
    read = {} if known is None else {each.weight: each.sparsity for each in known.layers}
    measured: dict[str, Sparsity | None] = {}
    layers = []
    for layer in profile.layers:
        if layer.weight is not None and layer.weight not in measured:
            has_read = layer.weight in read
            found = read[layer.weight] if has_read else _measure(bound, layer.weight)
            measured[layer.weight] = found
        layers.append(_with_sparsity(layer, measured.get(layer.weight or "")))
    unread = sum(sparsity is None for sparsity in measured.values())
    notes = profile.notes
    if unread:
        note = f"{unread} of {len(measured)} weights are generated or packed: taken as dense"
        notes = (*notes, note)
    return replace(profile, layers=tuple(layers), notes=notes)


def _measure(bound: BoundModel, name: str) -> Sparsity | None:
    weight = bound.graph.weights[name]
    if weight.nonzeros is not None:
        zeros = weight.size - weight.nonzeros
        return Sparsity(zeros, weight.size, "1x1", zeros / max(weight.size, 1), None)
    # Packed: a zero element holds several parameters, which need not be zero.
    if weight.params > weight.size:
        return None
    values = bound.read_weight(name)
    if values is None:
        return None
    place = weight.zero_point
    if place is None:
        return measure_sparsity(values)
    zero_point = bound.read_weight(place.weight)
    try:
        return measure_sparsity(values, zero_point, place.axis, place.block_size)
    except ValueError as error:
        raise ModelError(
            f"the zero point of {printable(name)!r} in {bound.file.name} does not fit: {error}. "
            "The file is damaged: export the model again."
        ) from error


def _with_sparsity(layer: StaticLayer, sparsity: Sparsity | None) -> StaticLayer:
    if sparsity is None:
        return layer
    # The remaining MACs multiply activations (attention scores) or smaller weights of the layer.
    others = None if layer.macs is None else layer.macs - layer.weight_macs
    effective = None if others is None else others + effective_macs(layer.weight_macs, sparsity)
    return replace(layer, sparsity=sparsity, effective_macs=effective)


def measure_sparsity(
    values: npt.NDArray[np.generic],
    zero_point: npt.NDArray[np.generic] | None = None,
    axis: int | None = None,
    block_size: int | None = None,
) -> Sparsity:
    """Return the sparsity of one weight.

    `zero_point`, `axis` and `block_size` are those of DequantizeLinear. An element is zero if it
    equals the zero point, which defaults to 0. NaN is never zero.

    The zero point is one number, a vector along `axis`, or an array of the rank of `values` in
    which each element applies to `block_size` values along `axis`. As in ONNX, `axis` defaults to
    1. Without `block_size`, the smallest size that fits is used. Raises ValueError if the shape of
    the zero point does not fit.
    """
    values = np.asarray(values)
    mask = _zero_mask(values, zero_point, axis, block_size)
    zeros = int(np.count_nonzero(mask))
    if zeros < DENSE_BELOW * mask.size or zeros == 0:
        return Sparsity(zeros, mask.size, "dense", 0.0, None)
    if zeros == mask.size:
        return Sparsity(zeros, mask.size, "all", 1.0, None)
    mask = _without_leading_ones(mask)
    blocks = _find_lines(_view(mask), zeros) or max(
        _all_blocks(mask, zeros), key=lambda found: found.elements, default=None
    )
    return Sparsity(
        zeros,
        mask.size,
        blocks.pattern if blocks else "1x1",
        (blocks.covered if blocks else zeros) / mask.size,
        _find_grouping(mask, zeros),
    )


def effective_macs(macs: int, sparsity: Sparsity) -> int:
    """Return the MACs that multiply with a nonzero weight, rounded to the nearest integer.

    This assumes that every element of a weight is used equally often, which holds for matrix
    products, and for convolutions except at their padding.
    """
    if not sparsity.size:
        return macs
    return (2 * macs * (sparsity.size - sparsity.zeros) + sparsity.size) // (2 * sparsity.size)


class _Blocks(Struct, frozen=True):
    pattern: str
    elements: int
    covered: int


def _zero_mask(
    values: npt.NDArray[np.generic],
    zero_point: npt.NDArray[np.generic] | None,
    axis: int | None,
    block_size: int | None,
) -> Mask:
    """Return a contiguous array, of at least one axis, that is True at each zero."""
    if values.dtype.kind in "OSU" or not values.size:  # text has no zero
        return np.zeros(values.shape or (1,), np.bool_)
    given = np.asarray(0 if zero_point is None else zero_point)
    if given.size == 1:
        given = given.reshape(())
    elif values.ndim:
        given = _spread(given, values.shape, axis, block_size)
    else:
        msg = f"a scalar weight cannot have a zero point of shape {given.shape}"
        raise ValueError(msg)
    # Convert the zero point to the type of the values, or numpy would convert all the values. In a
    # type without a zero (float8e8m0) it becomes NaN, which equals no value.
    with np.errstate(all="ignore"):
        point = given.astype(values.dtype, copy=False)
    mask = np.ascontiguousarray(values == point)
    if zero_point is not None and given.dtype != values.dtype:
        mask &= point.astype(np.complex128) == given.astype(np.complex128)  # 200 is not an int8
    return mask


def _spread(
    zero_point: npt.NDArray[np.generic],
    shape: tuple[int, ...],
    axis: int | None,
    block_size: int | None,
) -> npt.NDArray[np.generic]:
    """Return the zero point in a shape that broadcasts to `shape`."""
    rank = len(shape)
    along = min(1, rank - 1) if axis is None else axis
    if not -rank <= along < rank:
        msg = f"axis {along} does not exist in a weight of shape {shape}"
        raise ValueError(msg)
    along %= rank
    length = shape[along]
    if zero_point.ndim == 1 and zero_point.size == length:
        return zero_point.reshape([-1 if i == along else 1 for i in range(rank)])
    if zero_point.ndim == rank:
        count = zero_point.shape[along]
        block = block_size or -(-length // max(count, 1))
        pairs = list(zip(zero_point.shape, shape, strict=True))
        others_fit = all(have in (1, want) for i, (have, want) in enumerate(pairs) if i != along)
        if others_fit and count in (1, length):
            return zero_point
        if others_fit and -(-length // block) == count:
            repeated = np.repeat(zero_point, block, axis=along)
            return repeated[tuple(slice(length if i == along else None) for i in range(rank))]
    msg = (
        f"a zero point of shape {zero_point.shape} along axis {along}"
        f"{f' in blocks of {block_size}' if block_size else ''}"
        f" does not fit a weight of shape {shape}"
    )
    raise ValueError(msg)


def _without_leading_ones(mask: Mask) -> Mask:
    first = next((i for i, dim in enumerate(mask.shape) if dim != 1), 0)
    return mask.reshape(mask.shape[max(0, min(first, mask.ndim - 2)) :])


def _view(mask: Mask) -> Mask:
    return mask.reshape(mask.shape[0] if mask.ndim > 1 else 1, -1)


def _find_lines(view: Mask, zeros: int) -> _Blocks | None:
    rows, columns = view.shape
    if min(rows, columns) < 2:
        return None
    zero_rows = int(np.count_nonzero(view.all(axis=1)))
    zero_columns = int(np.count_nonzero(view.all(axis=0)))
    for pattern, i, j in (
        ("rows", zero_rows, 0),
        ("columns", 0, zero_columns),
        ("rows+columns", zero_rows, zero_columns),
    ):
        covered = view.size - (rows - i) * (columns - j)
        log_ways = _log_choose(rows, i) + _log_choose(columns, j)
        if (
            _is_covered(covered, zeros)
            and _is_filled(covered, zeros, view.size)
            and _is_no_chance(log_ways, covered, zeros, view.size)
        ):
            return _Blocks(pattern, view.size, covered)
    return None


def _all_blocks(mask: Mask, zeros: int) -> Iterator[_Blocks]:
    """Yield the blocks that the zeros come in. Among blocks of the same size, 1xN comes first."""
    views = [_view(mask)]
    inner = prod(mask.shape[2:])
    if mask.ndim > 2 and inner > 1:
        kernels = np.logical_and.reduce(mask.reshape(*mask.shape[:2], inner), axis=2)
        yield from _true_blocks(views[0], kernels, (1, inner), zeros)
        views.append(_view(mask.reshape(*mask.shape[:2], inner).swapaxes(1, 2)))
    for step in ((1, 2), (2, 2), (2, 1)):
        for view in views:
            yield from _powers_of_two(view, step, zeros)


def _powers_of_two(view: Mask, step: tuple[int, int], zeros: int) -> Iterator[_Blocks]:
    """Yield the true patterns among blocks that grow by `step`, until they cover too few zeros."""
    height, width = step
    blocks = view
    while height <= view.shape[0] and width <= view.shape[1]:
        for axis in (0, 1):
            if step[axis] == 2:
                blocks = _join_pairs(blocks, axis)
        if not _is_covered(_covered(view.shape, blocks, (height, width)), zeros):
            # Each block consists of blocks of the previous size, so larger ones cover even less.
            return
        yield from _true_blocks(view, blocks, (height, width), zeros)
        height, width = height * step[0], width * step[1]


def _join_pairs(blocks: Mask, axis: int) -> Mask:
    """Return which pairs of neighbours along `axis` are both zero. An odd last one has no pair."""
    if axis == 0:
        joined, second = blocks[::2].copy(), blocks[1::2]
        joined[: second.shape[0]] &= second
    else:
        joined, second = blocks[:, ::2].copy(), blocks[:, 1::2]
        joined[:, : second.shape[1]] &= second
    return joined


def _true_blocks(view: Mask, blocks: Mask, block: tuple[int, int], zeros: int) -> Iterator[_Blocks]:
    covered = _covered(view.shape, blocks, block)
    if not (_is_covered(covered, zeros) and _is_filled(covered, zeros, view.size)):
        return
    # The test for chance uses complete blocks only. If the last block of each row is a single
    # column wide, a few zeros in that column would fill it every time.
    height, width = block
    rows, columns = view.shape[0] // height, view.shape[1] // width
    complete = view[: rows * height, : columns * width]
    zero_blocks = int(np.count_nonzero(blocks[:rows, :columns]))
    if _is_no_chance(
        _log_choose(rows * columns, zero_blocks),
        zero_blocks * height * width,
        int(np.count_nonzero(complete)),
        complete.size,
    ):
        yield _Blocks(f"{height}x{width}", height * width, covered)


def _covered(shape: tuple[int, ...], blocks: Mask, block: tuple[int, int]) -> int:
    height, width = block
    (rows, last_height), (columns, last_width) = divmod(shape[0], height), divmod(shape[1], width)
    return (
        int(np.count_nonzero(blocks[:rows, :columns])) * height * width
        + int(np.count_nonzero(blocks[:rows, columns:])) * height * last_width
        + int(np.count_nonzero(blocks[rows:, :columns])) * last_height * width
        + int(np.count_nonzero(blocks[rows:, columns:])) * last_height * last_width
    )


def _is_covered(covered: int, zeros: int) -> bool:
    return covered >= MIN_COVERAGE * zeros


def _is_filled(covered: int, zeros: int, size: int) -> bool:
    return size - zeros >= MIN_FILL * (size - covered)


def _is_no_chance(log_ways: float, covered: int, zeros: int, size: int) -> bool:
    """Whether randomly placed zeros would almost never fill that many blocks.

    A fixed choice of blocks with `covered` elements is all zero in C(size - covered, zeros -
    covered) of the C(size, zeros) placements of the zeros. That share times the number of ways to
    choose the blocks is an upper bound of the probability.
    """
    log_probability = _log_choose(size - covered, zeros - covered) - _log_choose(size, zeros)
    return log_ways + log_probability < log(MAX_CHANCE)


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def _find_grouping(mask: Mask, zeros: int) -> tuple[int, int] | None:
    ratio = zeros / mask.size
    view = _view(mask)
    for n, m in GROUPINGS:
        if not 0 <= ratio - (1 - n / m) <= MAX_EXCESS:
            continue
        if mask.size // m * log(_share_of_groups(n, m, ratio)) >= log(MAX_CHANCE):
            continue
        if _is_grouped(view, 1, n, m) or (
            mask.ndim > 1 and _is_grouped(mask, 0 if mask.ndim == 2 else 1, n, m)
        ):
            return n, m
    return None


def _share_of_groups(n: int, m: int, ratio: float) -> float:
    """Return the share of groups with at most `n` nonzeros of `m` for zeros in random places."""
    return sum(comb(m, k) * (1 - ratio) ** k * ratio ** (m - k) for k in range(n + 1))


def _is_grouped(mask: Mask, axis: int, n: int, m: int) -> bool:
    length = mask.shape[axis]
    if length % m:
        return False
    groups = mask.view(np.uint8).reshape(prod(mask.shape[:axis]), length // m, m, -1)
    zeros = groups[:, :, 0].copy()
    for i in range(1, m):
        zeros += groups[:, :, i]
    return int(zeros.min()) >= m - n
