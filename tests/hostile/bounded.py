"""Files that claim more than there is, and the child that reads them with little memory.

Each is given to its readers, in a process that may use only some memory more than after its
imports. The answer to each is printed at once, for a test to judge.
"""

from __future__ import annotations

import io
import json
import resource
import sys
import traceback
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

# Modules that the commands import as they go, so that these do not count.
from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.replaced import rebuild
from pytest_modelperf.graph.twin import make_twin, read_twin
from tests.support.command import run
from tests.support.small_models import parse

MORE_BYTES = 512 << 20
_HUGE = 2**62
# The version that a model begins with.
_HEAD = b"\x08\x09"


def _model(text: str) -> bytes:
    return bytes(parse(text).SerializeToString())


def _field(number: int, content: bytes) -> bytes:
    """A protobuf field that holds bytes."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def _nested(numbers: tuple[int, ...], depth: int) -> bytes:
    """Fields within fields, by these numbers in turn from the innermost on."""
    inner = bytes(2000)
    for level in range(depth * len(numbers)):
        inner = _field(numbers[level % len(numbers)], inner)
    return inner


def _weight(dims: list[int], **fields: object) -> bytes:
    model = parse("g (float[2] x) => (y) { y = Add (x, w) }")
    model.graph.initializer.append(TensorProto(name="w", data_type=1, dims=dims, **fields))  # type: ignore[arg-type]  # its fields
    return bytes(model.SerializeToString())


def _made(op: str, values: list[int]) -> bytes:
    """A tensor of the shape `values`, as a constant that a node takes."""
    model = parse(f"g (float[1] x) => (y) {{ y = {op} }}")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(values, np.int64), "s"))
    return bytes(model.SerializeToString())


def _nodes(count: int) -> bytes:
    """`count` nodes of one name in a row."""
    node = helper.make_node("Relu", ["x"], ["y"], name="n").SerializeToString()
    graph = _field(2, b"g") + _field(1, node) * count
    graph += _field(11, _info("x")) + _field(12, _info("y"))
    return _HEAD + _field(8, _field(1, b"") + b"\x10\x12") + _field(7, graph)


def _info(name: str) -> bytes:
    return bytes(helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]).SerializeToString())


def _typed(depth: int) -> bytes:
    """An input that is a sequence of sequences of ... of tensors."""
    model = parse("g (float[2] x) => (y) { y = Relu (x) }")
    kind = _nested_type(model.graph.input[0].type.SerializeToString(), depth)
    data = model.SerializeToString()
    info = _field(11, model.graph.input[0].SerializeToString())
    own = _field(11, _field(1, b"x") + _field(2, kind))
    graph = model.graph.SerializeToString()
    assert info in graph
    changed = graph.replace(info, own)
    return bytes(data.replace(_field(7, graph), _field(7, changed)))


def _nested_type(tensor: bytes, depth: int) -> bytes:
    for _ in range(depth):
        tensor = _field(4, _field(1, tensor))
    return tensor


def _loops(depth: int) -> bytes:
    """A loop of 2**62 trips in a loop of 2**62 trips in a loop ..."""
    inner = "MatMul (v, v)"
    for level in range(depth):
        inner = (
            f"Loop (n, c, v) <body = b{level} (int64 i{level}, bool d{level}, float[2,2] v) => "
            f"(bool e{level}, float[2,2] o{level}) "
            f"{{ e{level} = Identity (d{level}) o{level} = {inner} }}>"
        )
    return _model(
        "g (float[2,2] v) => (float[2,2] y) { "
        f"n = Constant <value_int = {_HUGE}> () c = Constant <value = bool {{1}}> () y = {inner} }}"
    )


def _texts(count: int) -> bytes:
    model = parse("g (float[2] x) => (y, z) { y = Relu (x)  z = Identity (w) }")
    model.graph.initializer.append(
        TensorProto(name="w", data_type=TensorProto.STRING, dims=[2**40], string_data=[b""] * count)
    )
    return bytes(model.SerializeToString())


MODELS: Mapping[str, Callable[[], bytes]] = {
    "a number that never ends": lambda: _HEAD + b"\x38" + b"\xff" * 100_000,
    "a length that never ends": lambda: _HEAD + b"\x3a" + b"\xff" * 9 + b"\x01",
    "messages 20,000 deep": lambda: _HEAD + _nested((7,), 20_000),
    "graphs in graphs 2,000 deep": lambda: _HEAD + _field(7, _nested((6, 5, 1), 2_000)),
    "types 20 deep": lambda: _typed(20),
    "types 2,000 deep": lambda: _typed(2_000),
    "weights of 2**1240 elements": lambda: _weight([_HUGE] * 20),
    "weights of 2**1240 elements elsewhere": lambda: _weight(
        [_HUGE] * 20, data_location=TensorProto.EXTERNAL
    ),
    "a weight of a million dimensions": lambda: _weight([_HUGE] * 1_000_000),
    "a weight of a million dimensions of 1": lambda: _weight([1] * 1_000_000, raw_data=b"1234"),
    "raw data shorter than its shape": lambda: _weight([1000, 1000], raw_data=bytes(4096)),
    "2**40 texts": lambda: _texts(10),
    "a shape of 2**1240": lambda: _made("ConstantOfShape (s)", [_HUGE] * 20),
    "a shape of 8,000 dimensions": lambda: _made("Expand (x, s)", [_HUGE] * 8_000),
    "a fill of a terabyte": lambda: _made("ConstantOfShape (s)", [2**20, 2**18]),
    "a tile of a terabyte": lambda: _made("Tile (x, s)", [2**38]),
    "a pad of a terabyte": lambda: _made("Pad (x, s)", [2**37, 2**37]),
    "one hot in 2**50": lambda: _model(
        f"g (int64[9] i, float[2] v) => (y) {{ d = Constant <value_int = {2**50}> () "
        "y = OneHot (i, d, v) }"
    ),
    "loops of 2**1860 trips": lambda: _loops(30),
    "a cycle": lambda: _model(
        "g (float[2] x) => (y) { a = Add (x, b)  b = Relu (a)  y = Relu (b) }"
    ),
    "400,000 nodes of one name": lambda: _nodes(400_000),
}
# Each file is read by each of these commands, which write next to it.
COMMANDS = (
    ("profile", "{0}", "--static", "--sparsity", "--columns", "all", "--json", "{0}.json", "--csv",
     "{0}.csv", "--html", "{0}.html"),
    ("compare", "{0}", "{0}", "--static", "--markdown", "{0}.md"),
    ("shapes", "{0}", "-o", "{0}.shaped"),
)  # fmt: skip


def _claiming_twin(dims: list[int], note: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        model = onnx.ModelProto.FromString(_weight(dims))
        weight = model.graph.initializer[0]
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="weights-left-out")
        weight.metadata_props.add(key="modelperf.twin", value=note)
        model.metadata_props.add(key="modelperf.twin", value='{"schema": 1}')
        path = folder / "twin.onnx"
        path.write_bytes(model.SerializeToString())
        rebuild(read_twin(path), folder / "rebuilt.onnx", max_bytes=1 << 30)

    return read


def _trace(head: str, size: int) -> Callable[[Path], None]:
    """A file of one line that goes on and on."""

    def read(folder: Path) -> None:
        path = folder / "trace.json"
        path.write_text(head)
        with path.open("ab") as file:
            file.truncate(size)
        _command("trace", str(path))

    return read


def _inputs(folder: Path) -> None:
    """An archive whose array claims a petabyte."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (2**48,)}
    )
    path = folder / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(64))
    (folder / "m.onnx").write_bytes(_model("g (float[N] x) => (y) { y = Relu (x) }"))
    _command("profile", str(folder / "m.onnx"), "--input-file", str(path))


def _command(*arguments: str) -> None:
    """Raise what the command said; one that broke has a traceback in it."""
    result = run(*arguments)
    if result.exit_code:
        raise (ModelPerfError if result.exit_code == 2 else RuntimeError)(result.err.strip())


_STATISTICS = '{"lowest": -1.0, "highest": 1.0, "mean": 0.0, "deviation": 0.5}'
_ORT = '[\n{"cat" : "Session","pid" :1,"tid" :1,"dur" :1,"ts" :1,"ph" : "X","name" :"'
FILES: Mapping[str, Callable[[Path], None]] = {
    "a twin of terabytes": _claiming_twin([2**20, 2**22], _STATISTICS),
    "a twin of 2**1240 elements": _claiming_twin([_HUGE] * 20, _STATISTICS),
    "a trace of one line": _trace(_ORT, 192 << 20),
    "a trace of one text": _trace('{"traceEvents": [{"name": "', 192 << 20),
    "inputs of a petabyte": _inputs,
}


def _read_model(path: Path) -> None:
    for command in COMMANDS:
        _command(*(part.format(path) for part in command))
    make_twin(open_model(path))


def write_models(folder: Path) -> None:
    """The models in files that are called as they are; another process reads them."""
    for name, make in MODELS.items():
        (folder / f"{name}.onnx").write_bytes(make())


def _main(folder: Path) -> None:
    has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + MORE_BYTES,) * 2)
    for name in (*FILES, *MODELS):
        refused = fault = None
        try:
            if name in FILES:
                FILES[name](folder)
            else:
                _read_model(folder / f"{name}.onnx")
        except ModelPerfError as error:
            refused = str(error)
        except BaseException:  # noqa: BLE001  # reported to the test
            fault = traceback.format_exc()
        sys.stdout.write(json.dumps({"name": name, "refused": refused, "fault": fault}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
