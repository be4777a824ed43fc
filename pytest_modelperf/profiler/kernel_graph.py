"""The kernels of a case as a graph, also where the engine tells no plan or nothing ran."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pytest_modelperf.profiler.counting.records import StaticLayer
from pytest_modelperf.profiler.measurements import GraphKernel, LayerTime
from pytest_modelperf.profiler.records import CaseProfile


def kernels_of_case(case: CaseProfile) -> tuple[GraphKernel, ...]:
    """The kernels of the plan; without one, the layers of the model, fused as they ran.

    Empty if it is not known how they are connected.
    """
    measured = case.measured
    if measured is not None and measured.kernels is not None:
        return measured.kernels
    layers = () if case.counted is None else case.counted.layers
    if any(layer.fed_by is None for layer in layers):
        return ()
    times = () if measured is None else measured.layer_times or ()
    return _kernels_of_layers(layers, {t.layer: t for t in times if t.layer is not None})


def _kernels_of_layers(
    layers: Sequence[StaticLayer], times: Mapping[int, LayerTime]
) -> tuple[GraphKernel, ...]:
    hosts = list(range(len(layers)))
    for host, time in times.items():
        for fused in time.fused:
            # A layer that several kernels compute is shown at one of them.
            if fused not in times:
                hosts[fused] = host
    members: dict[int, list[int]] = defaultdict(list)
    for layer, host in enumerate(hosts):
        members[host].append(layer)
    # A kernel runs where the last of its layers stands.
    order = sorted(members, key=lambda host: members[host][-1])
    places = {host: place for place, host in enumerate(order)}
    return tuple(
        GraphKernel(
            op_type=layers[host].op_type,
            inputs=tuple(
                dict.fromkeys(
                    feeder
                    for layer in members[host]
                    for each in layers[layer].fed_by or ()
                    if (feeder := places[hosts[each]]) < place
                )
            ),
            layer=host,
            ns=times[host].ns if host in times else None,
        )
        for place, host in enumerate(order)
    )
