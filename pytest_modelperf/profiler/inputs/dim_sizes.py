"""Sizes of named dimensions, and which combinations of them are cases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence


class PairedSizes(dict[str, tuple[int, ...]]):
    """Sizes that go together: the first size of each name makes one case, the second another."""


def pair_sizes(cases: Sequence[Mapping[str, int]]) -> Mapping[str, tuple[int, ...]]:
    """Return the paired sizes of cases, which all have to name the same dimensions."""
    return PairedSizes({name: tuple(case[name] for case in cases) for name in cases[0]})


def combine_sizes(sizes: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, int]]:
    """Yield every set of sizes with one for each name. Paired sizes stay together."""
    is_paired = isinstance(sizes, PairedSizes)
    own = sizes.values()
    for each in zip(*own, strict=True) if is_paired else itertools.product(*own):
        yield dict(zip(sizes, each, strict=True))


def varying_names(sizes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    return tuple(name for name, own in sizes.items() if len(set(own)) > 1)
