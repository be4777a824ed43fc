"""Every operator that can be counted, and every one that cannot, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_modelperf.profiler.counting import (
    attention,
    classic,
    convolution,
    detection,
    elementwise,
    generators,
    linear_attention,
    matmul,
    movement,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    resampling,
    selection,
    text,
    training,
    transformer,
    transforms,
)
from pytest_modelperf.profiler.counting.cost import Counter

FAMILIES: Mapping[str, Mapping[str, Counter]] = MappingProxyType(
    {
        "attention": attention.COUNTERS,
        "classic": classic.COUNTERS,
        "convolution": convolution.COUNTERS,
        "detection": detection.COUNTERS,
        "elementwise": elementwise.COUNTERS,
        "generators": generators.COUNTERS,
        "linear_attention": linear_attention.COUNTERS,
        "matmul": matmul.COUNTERS,
        "movement": movement.COUNTERS,
        "normalization": normalization.COUNTERS,
        "pooling": pooling.COUNTERS,
        "quantization": quantization.COUNTERS,
        "recurrent": recurrent.COUNTERS,
        "reduction": reduction.COUNTERS,
        "resampling": resampling.COUNTERS,
        "selection": selection.COUNTERS,
        "text": text.COUNTERS,
        "training": training.COUNTERS,
        "transformer": transformer.COUNTERS,
        "transforms": transforms.COUNTERS,
    }
)

STANDARD_COUNTERS: Mapping[str, Counter] = MappingProxyType(
    {op: counter for family in FAMILIES.values() for op, counter in family.items()}
)

# These cost as much as their bodies, which are counted as graphs of their own.
CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})

# The reasons why there is no rule, worded to follow the operator's name.
UNTELLABLE: Mapping[str, str] = MappingProxyType(
    {
        **linear_attention.UNTELLABLE,
        **selection.UNTELLABLE,
        **text.UNTELLABLE,
        **training.UNTELLABLE,
        "com.microsoft::EPContext": "it is a graph that a vendor's compiler has made opaque",
        "com.microsoft::Snpe": "it is a graph that a vendor's compiler has made opaque",
    }
)
