"""A model with one name in every place that has a name, and the names that are put there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Names that a careless report would obey. The first characters matter to some: a line of a log, a
# cell of a table, a block of Markdown may begin with a name.
NAMES: Mapping[str, str] = {
    "terminal": "\x1b[2J\x1b]0;title\x07\x9b31m\x9d\x85\r\n\x0b\x7f\x08\u2028\u2029\u202e\u2066"
    "\u200b\ufeff\u00ad\U000e0041\x00\ttail",
    "runner": "::error file=a,line=1::told ##[add-mask]b ##vso[task.setvariable variable=c]d\n"
    "::set-output name=e::f%0A::stop-commands::g",
    "markup": "</script><img src=x onerror=alert(1)><!-- ]]> {{ 7*7 }} {% raw %} &amp; "
    "\"'><b>b</b>",
    "markdown": "# h | a ` b ```\n![i](http://e.test/i.png) [l](javascript:1) **s** ~~d~~ $m$ "
    "@team #12 GH-1 www.e.test http://e.test \\| <!-- - [x] 1. t",
    "formula": "=cmd|' /C calc'!A1,\"b\"\n@SUM(1)\t+1;-1",
    "wide formula": "\uff1d1+1",
    "shell": "-x$(touch pwned)`touch pwned`;touch pwned|'\"\\\n!! &>pwned #",
    "path": "../../up/\\..\\con.",
    "format": "%s%n{0}{name!r}${x}%(y)s\\x41\\N{DIGIT ONE}",
}
# All of them at once, for what takes long.
EVERYTHING = " ".join(NAMES.values())
PLAIN = "plain"


def named_model(name: str, *, runs: bool = False, width: int = 5) -> onnx.ModelProto:
    """A model in which nodes, tensors, dimensions, domains and all the rest are called so.

    Names that must differ have a letter behind them. With `runs` it has no operator of that name,
    so that an engine takes it. `width` is that of a weight.
    """
    graph = helper.make_graph(
        _nodes(name) if runs else [*_nodes(name), *_unknown_nodes(name)],
        name,
        [helper.make_tensor_value_info(f"{name}x", TensorProto.FLOAT, [f"{name}N", 3])],
        [helper.make_tensor_value_info(f"{name}y", TensorProto.FLOAT, [f"{name}N", width])],
        [numpy_helper.from_array(np.ones((3, width), np.float32), f"{name}w")],
        doc_string=name,
        value_info=[
            helper.make_tensor_value_info(f"{name}h", TensorProto.FLOAT, [f"{name}N", width])
        ],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(f"{name}f", 1)]
    function = helper.make_function(
        f"{name}f", f"{name}F", ["i"], ["o"],
        [helper.make_node("Relu", ["i"], ["o"], name=f"{name}inner")], opsets[:1],
    )  # fmt: skip
    if not runs:
        opsets.append(helper.make_opsetid(f"{name}d", 1))
    model = helper.make_model(
        graph, opset_imports=opsets, functions=[function], ir_version=9, producer_name=name,
        producer_version=name, domain=name, doc_string=name,
    )  # fmt: skip
    helper.set_model_props(model, {name: name})
    return model


def _nodes(name: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("MatMul", [f"{name}x", f"{name}w"], [f"{name}h"], name=name),
        helper.make_node(
            f"{name}F", [f"{name}h"], [f"{name}k"], name=f"{name}b", domain=f"{name}f"
        ),
        helper.make_node("Relu", [f"{name}k"], [f"{name}y"], name=f"{name}c", doc_string=name),
    ]


def _unknown_nodes(name: str) -> list[onnx.NodeProto]:
    node = helper.make_node(
        f"{name}Op", [f"{name}h"], [f"{name}u"], name=f"{name}d", domain=f"{name}d"
    )
    node.attribute.extend(helper.make_attribute(f"{name}{n}", name) for n in "ab")
    return [node]
