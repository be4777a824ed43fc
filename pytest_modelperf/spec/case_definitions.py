"""The settings of a case: each defined once, for tables, markers, calls and commands."""

from __future__ import annotations

from pytest_modelperf.spec.run_definitions import MODEL, RUN_SETTINGS, Place, Setting

THE_MODEL = Setting(
    "model",
    "model",
    "the path of a model, its address with a digest, its bytes, an `onnx.ModelProto`, or a Python "
    "function",
    places=(Place.CALL,),
)
FIXTURE = Setting(
    "fixture",
    "fixture",
    "the fixture whose value is the model",
    places=(Place.CALL,),
    example='"exported_encoder"',
    guide="late-models.md#from-a-fixture",
    field="origin",
)
MAKE = Setting(
    "make",
    "function",
    "a function that returns the model, as `package.module:function`",
    places=MODEL,
    example='"tools.export:encoder"',
    guide="late-models.md#from-a-function",
    field="origin",
)
URL = Setting(
    "url",
    "address",
    "the address of the model, with the SHA-256 of the file",
    places=(Place.MODEL,),
    example='"https://host/encoder.onnx#sha256='
    'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"',
    guide="late-models.md#from-a-server",
    field="origin",
)
BATCH_SIZE = Setting(
    "batch_size",
    "sizes",
    "batch sizes",
    places=(*MODEL, Place.COMMAND),
    metavar="N[,N...]",
    usual="the model's own, or 1",
    example="[1, 8]",
    command="batch",
    field="batch_sizes",
)
CORES = Setting(
    "cores",
    "sizes",
    "core counts",
    places=(*MODEL, Place.COMMAND),
    metavar="N[,N...]",
    default=1,
    example="[1, 2]",
)
DIMS = Setting(
    "dims",
    "dims",
    "sizes of named dimensions. Sizes that go together are a list of tables. 0 is the size of an "
    "empty cache",
    places=(*MODEL, Place.COMMAND),
    metavar="NAME=SIZE",
    example="{seq = [64, 128]}",
    typed_help="size of a named dimension, as in `seq=64`; repeatable",
    guide="writing-tests.md#markers",
    is_repeatable=True,
    table_key="dims",
    command="dim",
)
INPUTS = Setting(
    "inputs",
    "texts",
    "type and shape of an input, and its value if that matters. A shape of `-1` takes its "
    "length from the values",
    places=(*MODEL, Place.COMMAND),
    metavar="NAME:DTYPE:SHAPE[:VALUE]",
    example='["ids:i64:1x64", "ratio:f32:1:0.25"]',
    typed_help="type and shape of an input, and its value if that matters, as in `ids:i64:1x64` "
    "or `ratio:f32:1:0.25`; repeatable",
    is_repeatable=True,
    table_key="inputs",
    command="input",
)
PROMPT = Setting(
    "prompt",
    "lengths",
    "the tokens of the prompt of a generation: its prefill is one inference on all of them",
    places=(*MODEL, Place.COMMAND),
    metavar="N[,N...]",
    unit="tokens",
    example="[128, 512]",
    guide="generating.md",
    field="prompts",
)
GENERATE = Setting(
    "generate",
    "lengths",
    "the tokens to generate: each step is an inference on one, with the state of the step before",
    places=(*MODEL, Place.COMMAND),
    metavar="N[,N...]",
    unit="tokens",
    example="64",
    guide="generating.md",
    field="generates",
)
PHASE = Setting(
    "phase",
    "phases",
    "the phases of a generation that are cases: `prefill` or `step`",
    places=MODEL,
    usual="both",
    example='"step"',
    guide="generating.md",
    field="phases",
)
STATE = Setting(
    "state",
    "state",
    "inputs that take an output of the step before, if names do not show which",
    places=(*MODEL, Place.COMMAND),
    metavar="PAST=PRESENT",
    example='{past = "present"}',
    typed_help="an input that takes an output of the step before, if names do not show which; "
    "repeatable",
    guide="generating.md",
    is_repeatable=True,
    table_key="state",
)
INPUT_FILE = Setting(
    "input_file",
    "path",
    "run the model on the arrays of this NumPy file, which have the names of its inputs",
    places=(*MODEL, Place.COMMAND),
    metavar="F.npz",
    example='"inputs.npz"',
)
WORKLOAD = Setting(
    "workload",
    "workload",
    "inputs of several sizes that one session sees in turn, each as often as its weight says",
    places=(*MODEL, Place.COMMAND),
    metavar="PATTERN",
    example="[{dims = {seq = 16}, weight = 5}, {dims = {seq = 128}}]",
    typed_help="run one session on all of these NumPy files in turn, as in `inputs/*.npz`",
    guide="workloads.md",
)
BUDGET = Setting(
    "budget",
    "budgets",
    "absolute limits",
    places=(Place.MODEL,),
    example="{latency_ms = 12}",
    guide="budgets.md",
    field="budgets",
)
BASELINE = Setting(
    "baseline",
    "inner_path",
    "the path that names its baseline, for a model that keeps the baseline of another path",
    places=MODEL,
    usual="its path",
    example='"models/encoder.onnx"',
    guide="baselines.md",
)
MACHINES = Setting(
    "machines",
    "names",
    "keys or tags of machines of a cluster: every case runs on each",
    places=MODEL,
    usual="any",
    example='["board", "quiet"]',
    guide="cluster.md#tests",
    word="machine",
)

CASE_SETTINGS = (
    *(each for each in globals().copy().values() if isinstance(each, Setting)),
    *(each for each in RUN_SETTINGS if each.stands_in(Place.MODEL)),
)

GUESS = Setting(
    "guess",
    "flag",
    "give open dimensions sizes that fit, and show them: what operators need, or common ones",
    places=(Place.COMMAND,),
    guide="sizes.md",
)

# A command has no named machines, and the interpreter may be on a machine of a cluster.
COMMAND_GATEWAY = Setting(
    "gateway",
    "text",
    "the interpreter or machine of a model: `popen//python=PATH` for another interpreter, "
    "`ssh=HOST` for another machine",
    places=(Place.COMMAND,),
    metavar="SPEC",
    usual="this machine",
)
