"""The texts that users read: their content at any width, and their layout."""

# ruff: noqa: E501  # what a wide terminal shows is wider than code

from __future__ import annotations

import csv
import re
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from inline_snapshot import snapshot
from msgspec.structs import replace

from pytest_modelperf.cli.parameters import COMMAND_WORDING
from pytest_modelperf.comparing.request import compare_profiles
from pytest_modelperf.errors import UsageError
from pytest_modelperf.profiler.records import ModelFacts, Profile
from pytest_modelperf.profiler.request import ProfileRequest, profile_model
from pytest_modelperf.profiler.rows import LayerRow
from pytest_modelperf.profiler.shown.facts import ModelRow, models_table
from pytest_modelperf.profiler.shown.names import name_models
from pytest_modelperf.profiler.shown.tables.cases import counts_table
from pytest_modelperf.profiler.shown.tables.layer_columns import (
    ALL_COLUMNS,
    LAYER_COLUMNS,
    TIME_COLUMNS,
    find_columns,
    sort_layers,
)
from pytest_modelperf.profiler.shown.tables.layers import LayerView, describe_model, summary_table
from pytest_modelperf.report.page import TextStyle
from pytest_modelperf.text.units import format_bytes
from tests.support.rendered import render_comparison, render_profile, render_profile_csv
from tests.support.small_models import ones, parse, save_beside

CLASSIFIER = """
    g (float[N,3,32,32] image) => (float[N,10] logits, aux) {
        [stem_convolution] c = Conv<pads=[1,1,1,1]>(image, kernel, bias)
        [stem_relu] r = Relu(c)
        [blend] aux = my.ops.Blend(r)
        [pool] p = GlobalAveragePool(r)
        [flatten] f = Flatten(p)
        [classifier] logits = Gemm(f, matrix, offset)
    }
"""
PLAIN = TextStyle()


def classifier(
    channels: int = 16, text: str = CLASSIFIER, request: ProfileRequest | None = None
) -> Profile:
    kernel = ones(channels, 3, 3, 3)
    kernel[: channels // 2] = 0
    weights = {
        "kernel": kernel,
        "bias": ones(channels),
        "matrix": ones(channels, 10),
        "offset": ones(10),
    }
    profile = profile_model(parse(text, weights=weights), request)
    return replace(profile, model=replace(profile.model, name="classifier.onnx"))


def of_fixed_size(profile: Profile) -> Profile:
    """The profile as of a file whose size does not depend on the package that writes it."""
    return replace(profile, model=replace(profile.model, size_bytes=2875, total_bytes=2875))


@pytest.fixture(scope="module")
def profile() -> Profile:
    return of_fixed_size(classifier())


@pytest.fixture(scope="module")
def sparse() -> Profile:
    return of_fixed_size(classifier(request=ProfileRequest(sparsity=True)))


def test_a_report_in_a_pipe_is_whole(profile: Profile) -> None:
    assert render_profile(profile, LayerView(), PLAIN) == snapshot("""\
classifier.onnx: 2.808 KiB, opset 21, my.ops 1

batch size                        1
MACs               at least 442.5 k
elementwise ops    at least 49.23 k  an exp counts 32, an add 1
FLOPs              at least 934.3 k  2 x MACs + elementwise
backward MACs      at least 442.7 k  100.0 % of the MACs, in one training step
params                          618  2.414 KiB
activations      at least 128.2 KiB  peak ?
layers                            6  83.3 % counted

not counted    count  share of layers  because
────────────────────────────────────────────────────────────────
my.ops::Blend      1           16.7 %  no rule for this operator

by layer type
layer type         count     MACs  elementwise    FLOPs  FLOPs %  params    outputs
───────────────────────────────────────────────────────────────────────────────────
Conv                   1  442.4 k      16.38 k  901.1 k   96.5 %     448  64.00 KiB
GlobalAveragePool      1        0      16.45 k  16.45 k    1.8 %       0       64 B
Relu                   1        0      16.38 k  16.38 k    1.8 %       0  64.00 KiB
Gemm                   1      160           10      330    0.0 %     170       40 B
Flatten                1        0            0        0    0.0 %       0       64 B
my.ops::Blend          1        ?            ?        ?        ?       0          ?

total                  6  442.5 k      49.23 k  934.3 k              618  128.2 KiB

by layer, in graph order
name              type                  MACs    FLOPs  FLOPs %  params     memory  output
─────────────────────────────────────────────────────────────────────────────────────────────
stem_convolution  Conv               442.4 k  901.1 k   96.5 %     448  65.75 KiB  1x16x32x32
stem_relu         Relu                     0  16.38 k    1.8 %       0  64.00 KiB  1x16x32x32
blend             my.ops::Blend            ?        ?        ?       0          ?  ?
pool              GlobalAveragePool        0  16.45 k    1.8 %       0       64 B  1x16x1x1
flatten           Flatten                  0        0    0.0 %       0       64 B  1x16
classifier        Gemm                   160      330    0.0 %     170      720 B  1x10

total                                442.5 k  934.3 k  100.0 %     618  130.6 KiB
""")


def test_a_report_at_80_columns(profile: Profile) -> None:
    text = render_profile(profile, LayerView(), TextStyle(80))
    assert text[text.index("by layer type") :] == snapshot("""\
by layer type
layer type         count     MACs    FLOPs  FLOPs %  params    outputs
──────────────────────────────────────────────────────────────────────
Conv                   1  442.4 k  901.1 k   96.5 %     448  64.00 KiB
GlobalAveragePool      1        0  16.45 k    1.8 %       0       64 B
Relu                   1        0  16.38 k    1.8 %       0  64.00 KiB
Gemm                   1      160      330    0.0 %     170       40 B
Flatten                1        0        0    0.0 %       0       64 B
my.ops::Blend          1        ?        ?        ?       0          ?

total                  6  442.5 k  934.3 k              618  128.2 KiB

by layer, in graph order
name              type                 MACs    FLOPs  FLOPs %  params     memory
────────────────────────────────────────────────────────────────────────────────
stem_convolution  Conv              442.4 k  901.1 k   96.5 %     448  65.75 KiB
stem_relu         Relu                    0  16.38 k    1.8 %       0  64.00 KiB
blend             my.ops::Blend           ?        ?        ?       0          ?
pool              GlobalA…ragePool        0  16.45 k    1.8 %       0       64 B
flatten           Flatten                 0        0    0.0 %       0       64 B
classifier        Gemm                  160      330    0.0 %     170      720 B

total                               442.5 k  934.3 k  100.0 %     618  130.6 KiB
""")


def test_a_report_of_sparsity_at_160_columns(sparse: Profile) -> None:
    columns = ("name", "type", "macs", "sparsity", "pattern", "block-sparsity", "effective-macs")
    view = LayerView(columns, sort="sparsity", top=3)
    text = render_profile(sparse, view, TextStyle(160))
    assert re.search(r"^effective MACs +at least 221\.3 k +50\.0 % of the MACs", text, re.MULTILINE)
    assert re.search(r"^Conv +1 .* 96\.5 %  █{40} +448", text, re.MULTILINE)
    assert text[text.index("by layer, ") :] == snapshot("""\
by layer, sorted by sparsity
name              type     MACs  sparsity  pattern  block sparsity  effective MACs
──────────────────────────────────────────────────────────────────────────────────
stem_convolution  Conv  442.4 k    50.0 %  rows             50.0 %         221.2 k
classifier        Gemm      160     0.0 %  dense             0.0 %             160
stem_relu         Relu        0

total                   442.5 k                                            221.3 k
3 more layers: --top 0 shows all
""")


def test_a_comparison_in_a_pipe() -> None:
    after = classifier(24, CLASSIFIER.replace("my.ops.Blend", "Exp"))
    comparison = compare_profiles(classifier(), after)
    assert render_comparison(comparison, PLAIN, COMMAND_WORDING) == snapshot("""\
classifier.onnx → classifier.onnx: regressed

b1-c1 regressed: params +49.2 %, allowed 0 %

metric               before        now     change  allowed
────────────────────────────────────────────────────────────────────────
MACs                442.5 k    663.8 k    +50.0 %      0 %  inconclusive
params                  618        922    +49.2 %      0 %  regressed
file size         2.814 KiB  3.982 KiB    +41.5 %   +1 MiB  passed
elementwise         49.23 k    860.3 k  +1647.6 %
weights           2.414 KiB  3.602 KiB    +49.2 %
activations       128.2 KiB  288.2 KiB   +124.9 %
peak activations          ?  192.1 KiB

by layer type
layer type         count  MACs before  MACs now  MACs change  elementwise
────────────────────────────────────────────────────────────────────────────
Conv                   1      442.4 k   663.6 k     +221.2 k     +8.192 k  <
Gemm                   1          160       240          +80            0
Exp                0 → 1            -         0            0     +786.4 k
GlobalAveragePool      1            0         0            0     +8.224 k
Relu                   1            0         0            0     +8.192 k
Flatten                1            0         0            0            0
my.ops::Blend      1 → 0            ?         -            ?            ?

why: MACs are lower bounds: my.ops::Blend could not be counted
why: 1 of 1 Conv of another shape (first: stem_convolution, output 1x16x32x32 → 1x24x32x32): +221.2 k MACs
why: 1 of 1 Gemm of another shape (first: classifier, input 1x16 → 1x24): +80 MACs
why: 1 my.ops::Blend became Exp (first: blend)
and 3 more reasons, as the table shows
""")  # a line is as long as its terminal


def test_a_comparison_at_80_columns() -> None:
    after = classifier(16, CLASSIFIER.replace("my.ops.Blend", "Exp"))
    comparison = compare_profiles(classifier(24, CLASSIFIER), after)
    text = render_comparison(comparison, TextStyle(80), COMMAND_WORDING)
    assert text[text.index("why:") :] == snapshot("""\
why: MACs are lower bounds: my.ops::Blend could not be counted
why: 1 my.ops::Blend became Exp (first: blend)
why: 1 of 1 Relu of another shape (first: stem_relu, output 1x24x32x32 →
     1x16x32x32)
why: 1 of 1 GlobalAveragePool of another shape (first: pool, output 1x24x1x1 →
     1x16x1x1)
and 3 more reasons, as the table shows
""")


def test_a_comparison_of_equal_models_says_so_in_few_lines() -> None:
    text = CLASSIFIER.replace("my.ops.Blend", "Exp")
    same = compare_profiles(classifier(16, text), classifier(16, text))
    assert render_comparison(same, PLAIN, COMMAND_WORDING) == snapshot("""\
classifier.onnx → classifier.onnx: passed

b1-c1 passed: MACs 0 %, allowed 0 %

metric               before        now  change
──────────────────────────────────────────────────────
MACs                442.5 k    442.5 k     0 %  passed
params                  618        618     0 %  passed
file size         2.795 KiB  2.795 KiB     0 %  passed
elementwise         573.5 k    573.5 k     0 %
weights           2.414 KiB  2.414 KiB     0 %
activations       192.2 KiB  192.2 KiB     0 %
peak activations  128.1 KiB  128.1 KiB     0 %
""")


def test_the_operator_that_grew_most_is_marked_and_none_that_shrank() -> None:
    text = CLASSIFIER.replace("my.ops.Blend", "Exp")
    small, large = classifier(16, text), classifier(24, text)
    grown = render_comparison(compare_profiles(small, large), PLAIN, COMMAND_WORDING).splitlines()
    assert [line.split()[0] for line in grown if line.endswith("<")] == ["Conv"]
    shrunk = render_comparison(compare_profiles(large, small), PLAIN, COMMAND_WORDING).splitlines()
    assert not any(line.endswith("<") for line in shrunk)


# -- laws


@pytest.mark.parametrize("width", [40, 60, 72, 80, 100, 120, 160])
def test_no_line_is_wider_than_the_terminal(sparse: Profile, width: int) -> None:
    for columns in (LayerView().columns, tuple(LAYER_COLUMNS)):
        text = render_profile(sparse, LayerView(columns), TextStyle(width))
        assert max(map(len, text.splitlines())) <= width


def test_a_model_weighs_what_its_external_data_weigh(tmp_path: Path) -> None:
    model = parse("g (float[64] x) => (float[64] y) { y = Add(x, w) }", weights={"w": ones(64)})
    path = tmp_path / "model.onnx"
    save_beside(model, path)
    size = format_bytes(path.stat().st_size + 256)

    profile = profile_model(path)
    (page_row,) = models_table([ModelRow("", profile.model)]).rows

    assert describe_model(profile.model).startswith(f"model.onnx: {size} with external data, opset")
    assert f"{size} with external data" in page_row


def test_a_model_whose_external_data_are_lost_weighs_what_its_file_does(tmp_path: Path) -> None:
    model = parse("g (float[64] x) => (float[64] y) { y = Add(x, w) }", weights={"w": ones(64)})
    path = tmp_path / "model.onnx"
    save_beside(model, path)
    (tmp_path / "weights").unlink()

    described = describe_model(profile_model(path).model)

    assert described.startswith(f"model.onnx: {format_bytes(path.stat().st_size)}, opset")


def test_names_get_the_width_of_columns_that_have_less_to_say() -> None:
    name = "jax2tf_get_logits/convolution/transformed_to_nchwc/layer"
    model = parse("g (float[1,8] x) => (float[1,8] y) { y = Relu(x) }")
    model.graph.node[0].name = name
    profile = profile_model(model)
    view = LayerView(columns=("name", "weight", "macs"))

    narrow = render_profile(profile, view, TextStyle(len(name) + 10)).split("by layer,")[1]
    default = render_profile(profile, LayerView(), TextStyle(80)).split("by layer,")[1]

    # No layer has a weight, and the shapes of outputs are spare.
    assert name in narrow
    assert "weight" not in narrow
    assert "output" not in default
    assert "output" in render_profile(profile, LayerView(), TextStyle(160))


def test_the_flops_of_layers_and_of_their_types_add_up_to_the_total() -> None:
    text = "g (float[1,8] x) => (float[1,4] z) { y = MatMul(x, w)  z = Exp(y) }"
    profile = profile_model(parse(text, weights={"w": ones(8, 4)}))

    by_type, by_layer = render_profile(profile, LayerView(), PLAIN).split("by layer,")

    # 2 x 32 MACs, and 4 times an exp, which counts 32.
    (head, *rows) = [
        line.split() for line in by_type.split("by layer type")[1].splitlines() if line
    ]
    found = {row[0]: row for row in rows}
    assert " ".join(head) == "layer type count MACs elementwise FLOPs FLOPs % params outputs"
    assert found["MatMul"][4:7] == ["64", "33.3", "%"]
    assert found["Exp"][4:7] == ["128", "66.7", "%"]
    assert found["total"][4] == "192"
    assert by_type.index("Exp ") < by_type.index("MatMul ")
    assert "FLOPs  FLOPs %" in by_layer


SHARED = """
    g (float[1,8] x) => (float[1,8] c) { a = MatMul(x, w)  b = MatMul(a, w)  c = MatMul(b, w) }
"""


def test_params_of_layers_that_share_a_weight_are_explained() -> None:
    profile = profile_model(parse(SHARED, weights={"w": ones(8, 8)}))

    text = render_profile(profile, LayerView(), PLAIN)

    note = (
        "params: the layers add up to 192, the model has 64: a weight that layers share counts "
        "once in the total"
    )
    by_type, by_layer = text.split("by layer type")[1].split("by layer,")
    assert note in by_type.splitlines()
    assert note in by_layer.splitlines()
    columns = render_profile(profile, LayerView(columns=("name", "macs")), PLAIN)
    assert note not in columns.split("by layer,")[1]


@pytest.mark.parametrize("width", [60, 72, 80, 100])
def test_a_number_or_shape_is_never_cut_to_another(profile: Profile, width: int) -> None:
    whole = set(render_profile(profile, LayerView(), PLAIN).split())
    for line in render_profile(profile, LayerView(), TextStyle(width)).splitlines():
        for word in line.split() if "left out" not in line else ():
            assert "…" in word or re.fullmatch("─+", word) or word in whole


def test_lines_end_without_blanks_and_the_text_with_one_line_break(profile: Profile) -> None:
    for style in (PLAIN, TextStyle(80)):
        text = render_profile(profile, LayerView(), style)
        assert all(line == line.rstrip() for line in text.splitlines())
        assert text.endswith("\n")
        assert not text.endswith("\n\n")


def test_colour_changes_no_text(profile: Profile) -> None:
    plain = render_profile(profile, LayerView(), TextStyle(100))
    coloured = render_profile(profile, LayerView(), TextStyle(100, color=True))
    assert "\x1b[" in coloured
    without = re.sub("\x1b\\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in without.splitlines()] == plain.splitlines()
    assert "\x1b" not in plain


def test_cores_make_no_table_of_their_own() -> None:
    model = parse("g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }")
    one = profile_model(model, ProfileRequest(cores=(1,)))
    two = profile_model(model, ProfileRequest(cores=(1, 2)))
    assert len(two.cases) == 2
    assert render_profile(two, LayerView(), PLAIN) == render_profile(one, LayerView(), PLAIN)


def test_several_graphs_have_a_table_of_what_each_costs(profile: Profile) -> None:
    model = parse("g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }")
    two = profile_model(model, ProfileRequest(batch_sizes=(1, 2)))
    text = render_profile(two, LayerView(), PLAIN)
    assert text[text.index("counts") : text.index("peak: ")] == snapshot("""\
counts
case   batch  MACs  FLOPs  params  activations  peak
────────────────────────────────────────────────────
b1-c1      1     0      3       0         12 B  12 B
b2-c1      2     0      6       0         24 B  24 B
""")
    partial = counts_table(profile.cases)
    assert [cell.startswith("at least") for cell in partial.rows[0][2:4]] == [True, True]


def test_sums_that_leave_something_out_say_at_least(profile: Profile) -> None:
    rows = {row[0]: row[1] for row in summary_table(profile.cases[0]).rows}
    assert {name for name, text in rows.items() if text.startswith("at least ")} == {
        "MACs", "elementwise ops", "FLOPs", "backward MACs", "activations",
    }  # fmt: skip


def test_activations_of_unknown_size_are_a_lower_bound() -> None:
    model = parse("g (float[2,3] x) => (i) { a = Relu(x) i = NonZero(a) }")
    profile = profile_model(model)
    assert profile.cases[0].static.coverage == 1.0
    rows = {row[0]: row[1:] for row in summary_table(profile.cases[0]).rows}
    assert rows["activations"] == ("at least 24 B", "peak ?")
    assert rows["elementwise ops"][0] == "12"


# -- columns


@pytest.mark.parametrize("name", [name for name, column in LAYER_COLUMNS.items() if column.total])
def test_a_total_is_that_of_its_rows(sparse: Profile, name: str) -> None:
    static = sparse.cases[0].static
    column = LAYER_COLUMNS[name]
    assert column.total is not None
    values = [column.read(row) for row in sparse.cases[0].layers]
    numbers = [value for value in values if isinstance(value, int)]
    total = column.total(sparse.cases[0])
    if name == "effective-macs":
        # A layer without weights has no such figure: all of its MACs are effective.
        numbers += [layer.macs or 0 for layer in static.layers if layer.effective_macs is None]
    elif name in ("memory", "memory%"):
        # An unknown output leaves out its layer's weights too.
        numbers += [x.weight_bytes for x in static.layers if x.output_bytes is None]
    assert total == sum(numbers)


@pytest.mark.parametrize("name", LAYER_COLUMNS)
def test_sorting_puts_the_largest_first_and_the_unknown_last(sparse: Profile, name: str) -> None:
    layers = sparse.cases[0].layers
    ordered = sort_layers(layers, name)
    assert sorted(map(layers.index, ordered)) == list(range(len(layers)))
    column = LAYER_COLUMNS[name]
    values = [column.read(layer) for layer in ordered]
    if column.holds_text:
        texts = [str(value or "") for value in values]
        assert texts == sorted(texts)
    else:
        numbers = [value for value in values if isinstance(value, (int, float))]
        assert numbers == sorted(numbers, reverse=True)
        assert values[: len(numbers)] == numbers


def test_sorting_keeps_graph_order_among_equals(profile: Profile) -> None:
    layers = profile.cases[0].layers
    read = LAYER_COLUMNS["macs"].read
    free = [row for row in sort_layers(layers, "macs") if read(row) == 0]
    assert free == [row for row in layers if read(row) == 0]
    assert len(free) > 1


def test_an_unknown_column_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UsageError) as caught:
        find_columns(["name", "memroy"])
    assert str(caught.value) == (
        f"there is no column 'memroy'. Did you mean 'memory'? There are: {', '.join(ALL_COLUMNS)}."
    )


@pytest.mark.parametrize("columns", [tuple(TIME_COLUMNS), ("name", "ms", "gmacs", "macs")])
def test_a_static_profile_has_no_column_that_takes_a_run(
    profile: Profile, columns: tuple[str, ...]
) -> None:
    text = render_profile(profile, LayerView(columns, sort="ms"), PLAIN)
    asked = [name for name in columns if name in LAYER_COLUMNS]
    instead = LayerView(asked or LayerView().columns, sort="macs")
    assert text == render_profile(profile, instead, PLAIN)


# -- CSV


def csv_of(profile: Profile, *columns: str) -> list[list[str]]:
    return list(csv.reader(StringIO(render_profile_csv(profile, columns))))


def test_csv_holds_plain_numbers_and_leaves_unknown_ones_empty(profile: Profile) -> None:
    header, *rows = csv_of(profile, "id", "type", "macs", "outputs", "output")
    assert header == ["case", "id", "type", "macs", "outputs", "output"]
    assert rows[0] == ["b1-c1", "c", "Conv", str(16 * 3 * 9 * 32 * 32), "65536", "1x16x32x32"]
    assert rows[2] == ["b1-c1", "aux", "my.ops::Blend", "", "", "?"]
    assert len(rows) == 6


def test_csv_has_no_shares_for_they_follow_from_the_numbers(profile: Profile) -> None:
    assert csv_of(profile, "name", "macs%", "params")[0] == ["case", "name", "params"]


def test_csv_has_a_row_for_each_case_and_layer() -> None:
    model = parse("g (float[N,3] x) => (y) { a = Relu(x) y = Exp(a) }")
    profile = profile_model(model, ProfileRequest(batch_sizes=(1, 8)))
    rows = csv_of(profile, "type", "elementwise")[1:]
    assert rows == [
        ["b1-c1", "Relu", "3"],
        ["b1-c1", "Exp", "96"],
        ["b8-c1", "Relu", "24"],
        ["b8-c1", "Exp", "768"],
    ]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r="])
def test_no_cell_of_csv_is_a_formula(start: str) -> None:
    model = parse("g (float[2,3] x) => (y) { y = Relu(x) }")
    model.graph.node[0].name = f'{start}HYPERLINK("http://a.b","c")'
    (cell,) = csv_of(profile_model(model), "name")[1][1:]
    assert cell[0] not in "=+-@\t\r"
    assert 'HYPERLINK("http://a.b","c")' in cell


def test_every_number_of_csv_is_that_of_the_record(sparse: Profile) -> None:
    names = [name for name in LAYER_COLUMNS if not name.endswith("%")]
    header, *rows = csv_of(sparse, *names)
    for row, layer in zip(rows, sparse.cases[0].layers, strict=True):
        for name, cell in zip(header[1:], row[1:], strict=True):
            check_cell(name, cell, layer)


def check_cell(name: str, cell: str, layer: LayerRow) -> None:
    value = LAYER_COLUMNS[name].read(layer)
    if value is None:
        assert cell == ""
    elif isinstance(value, str):
        assert cell == value
    else:
        assert np.isclose(float(cell), float(value), rtol=1e-12)


@pytest.mark.parametrize("separator", ["/", "\\"])
def test_models_of_one_name_are_distinguished_by_their_folders(separator: str) -> None:
    paths = [separator.join(("C:", "models", folder, "m.onnx")) for folder in ("old", "new")]
    models = [ModelFacts.named("m.onnx", path) for path in paths]
    assert name_models(models) == ("old/m.onnx", "new/m.onnx")
    assert name_models(models[:1]) == ("m.onnx",)
