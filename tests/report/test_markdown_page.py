"""The reports of profiles, sweeps and what-ifs as Markdown."""

from __future__ import annotations

from inline_snapshot import snapshot
from markdown_it import MarkdownIt
from msgspec.structs import replace

from pytest_modelperf.profiler.request import profile_model
from pytest_modelperf.profiler.shown.tables.layers import LayerView
from pytest_modelperf.report.markdown import MarkdownStyle
from tests.support.rendered import render_profile, render_sweep
from tests.support.small_models import ones, parse
from tests.support.whatifs import make_whatif, render_whatif
from tests.sweep.test_reports import one_model
from tests.whatif.test_reports import evil_whatif

MARKDOWN = MarkdownStyle()


def test_a_profile_has_the_tables_of_the_terminal() -> None:
    text = "g (float[2,3] x) => (float[2,5] y) { [dense] h = MatMul(x, w) [act] y = Relu(h) }"
    profile = profile_model(parse(text, weights={"w": ones(3, 5)}))
    profile = replace(profile, model=replace(profile.model, name="dense.onnx", size_bytes=178))
    assert render_profile(profile, LayerView(top=1), MARKDOWN) == snapshot("""\
### dense.onnx: 178 B, opset 21

|  |  |  |
| --- | ---: | --- |
| batch size | 2 |  |
| MACs | 30 |  |
| elementwise ops | 10 | an exp counts 32, an add 1 |
| FLOPs | 70 | 2 x MACs + elementwise |
| backward MACs | 30 | 100.0 % of the MACs, in one training step |
| params | 15 | 60 B |
| activations | 80 B | peak 80 B |
| layers | 2 | 100.0 % counted |

**by layer type**

| layer type | count | MACs | elementwise | FLOPs | FLOPs % | params | outputs |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| <code>MatMul</code> | 1 | 30 | 0 | 60 | 85.7 % | 15 | 40 B |
| <code>Relu</code> | 1 | 0 | 10 | 10 | 14.3 % | 0 | 40 B |
| **total** | **2** | **30** | **10** | **70** |  | **15** | **80 B** |

**by layer, in graph order**

| name | type | MACs | FLOPs | FLOPs % | params | memory | output |
| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |
| <code>dense</code> | <code>MatMul</code> | 30 | 60 | 85.7 % | 15 | 100 B | 2x5 |
| **total** |  | **30** | **70** | **100.0 %** | **15** | **140 B** |  |

1 more layer: --top 0 shows all
""")


def test_a_sweep_names_every_configuration_and_the_best() -> None:
    sweep = one_model()
    html = MarkdownIt().enable("table").render(render_sweep(sweep, MARKDOWN))
    assert html.startswith("<h3>encoder.onnx")
    assert "best: b1-c2-s2" in html
    assert "95 %" in html
    assert html.count("<tr>") > len(sweep.sides[0].points)


def test_a_what_if_names_every_level() -> None:
    whatif = make_whatif()
    text = render_whatif(whatif, style=MARKDOWN)
    for level in whatif.cases[0].levels:
        assert level.title in text
    assert "speed only" in text


def test_no_name_of_a_model_is_obeyed() -> None:
    html = MarkdownIt().enable("table").render(render_whatif(evil_whatif(), style=MARKDOWN))
    assert "<script" not in html
    assert "<a " not in html
    assert "<img" not in html
