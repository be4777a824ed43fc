"""The tables of a static profile: summary, layer types, what could not be counted."""

from __future__ import annotations

from pytest_modelperf.profiler.counting.records import StaticProfile
from pytest_modelperf.profiler.records import CaseProfile, ModelFacts
from pytest_modelperf.report.tables import Column, Table, table_of
from pytest_modelperf.text.units import format_bytes, format_count, format_share


def describe_model(model: ModelFacts) -> str:
    """One line on the model: name, size, operator sets, producer; the file of a function."""
    if model.function_file is not None:
        return f"{model.name}: a function from {model.function_file}"
    opsets = ", ".join(
        f"{'opset' if domain == 'ai.onnx' else domain} {number}"
        for domain, number in model.opsets.items()
    )
    parts = (model.described_size, opsets, model.producer)
    facts = ", ".join(part for part in parts if part)
    return f"{model.name}: {facts}" if facts else model.name


def summary_table(case: CaseProfile) -> Table:
    """The totals of one case, each with its meaning."""
    static = case.static
    # A sum that leaves something out is a lower bound, and says so.
    least = "at least " if static.coverage < 1 else ""
    rows = [
        ("batch size", str(case.case.batch_size), ""),
        ("MACs", least + format_count(static.macs), _inputs_note(case)),
        (
            "elementwise ops",
            least + format_count(static.elementwise_ops),
            "an exp counts 32, an add 1",
        ),
        ("FLOPs", least + format_count(static.flops), "2 x MACs + elementwise"),
        (
            "backward MACs",
            least + format_count(static.backward_macs),
            "of the gradients, for one training step",
        ),
        ("params", format_count(static.params), format_bytes(static.weight_bytes)),
        (
            "activations",
            ("" if static.knows_activations else "at least ")
            + format_bytes(static.activation_bytes),
            f"peak {format_bytes(static.peak_activation_bytes)}",
        ),
        ("layers", str(len(static.layers)), f"{format_share(static.coverage, 1.0)} counted"),
    ]
    if static.effective_macs is not None:
        share = format_share(static.effective_macs, static.macs)
        note = f"{share} of the MACs meet a weight that is not zero"
        rows.insert(2, ("effective MACs", least + format_count(static.effective_macs), note))
    columns = (Column("", is_text=True), Column(""), Column("", is_text=True))
    return Table("", columns, tuple(rows))


def _inputs_note(case: CaseProfile) -> str:
    return ", ".join(f"{name}={size}" for name, size in case.case.dims)


def layer_type_table(static: StaticProfile) -> Table:
    """One row per operator, the one with most FLOPs first."""
    types = sorted(
        static.layer_types.values(),
        key=lambda t: (-(t.flops or 0), t.qualified_op),
    )
    total = (
        "total",
        str(len(static.layers)),
        format_count(static.macs),
        format_count(static.elementwise_ops),
        format_count(static.flops),
        "",
        format_count(static.params),
        format_bytes(static.activation_bytes),
    )
    return table_of(
        "by layer type",
        types,
        (Column("layer type", is_name=True), lambda kind: kind.qualified_op),
        (Column("count"), lambda kind: str(kind.count)),
        (Column("MACs"), lambda kind: format_count(kind.macs)),
        # It follows from the columns beside it.
        (Column("elementwise", rank=1), lambda kind: format_count(kind.elementwise_ops)),
        (Column("FLOPs"), lambda kind: format_count(kind.flops)),
        (Column("FLOPs %"), lambda kind: format_share(kind.flops, static.flops)),
        (Column("params"), lambda kind: format_count(kind.params)),
        (Column("outputs"), lambda kind: format_bytes(kind.output_bytes)),
        total=total,
        caption=shared_params_line(static),
    )


def shared_params_line(static: StaticProfile) -> str:
    """Why the params of the layers add up to more than the total; empty if they do not."""
    if static.layer_params <= static.params:
        return ""
    return (
        f"params: the layers add up to {format_count(static.layer_params)}, the model has "
        f"{format_count(static.params)}: a weight that layers share counts once in the total"
    )


def uncounted_table(static: StaticProfile) -> Table | None:
    """The layers that sums leave out, and why; None if there are none."""
    if not static.uncounted:
        return None
    return table_of(
        "",
        sorted(static.uncounted, key=lambda u: (-u.count, u.qualified_op)),
        (Column("not counted", is_name=True), lambda u: u.qualified_op),
        (Column("count"), lambda u: str(u.count)),
        (Column("share of layers"), lambda u: format_share(u.count, len(static.layers))),
        (Column("because", is_text=True), lambda u: u.reason),
    )
