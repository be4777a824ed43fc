"""Read the weights of a model one at a time, and add their sparsity to the profile's layers."""

from __future__ import annotations

from msgspec.structs import replace

from pytest_modelperf.errors import ModelError
from pytest_modelperf.graph.load import BoundModel
from pytest_modelperf.profiler.counting.records import Sparsity, StaticLayer, StaticProfile
from pytest_modelperf.profiler.counting.sparsity import effective_macs, measure_sparsity
from pytest_modelperf.text.escaping import printable


def add_sparsity(
    profile: StaticProfile, bound: BoundModel, known: StaticProfile | None = None
) -> StaticProfile:
    """Return the profile with the sparsity of every stored weight that a layer multiplies with.

    A weight that is in the `known` profile is not read again.
    """
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
    # Packed: one element holds several parameters, so a zero element does not mean a zero
    # parameter.
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
