"""The text of `repro.py`, which times both models of a folder with numpy and onnxruntime alone.

On one version of the engine both models run in turn in one process. An upgrade has a process for
each model and round, because each model runs in a Python of its own.
"""

from __future__ import annotations

_LOAD = '''
FOLDER = Path(__file__).resolve().parent
PLAN = json.loads((FOLDER / "run.json").read_text(encoding="utf-8"))


def load(model):
    draw_weights(FOLDER, model)
    options = ort.SessionOptions()
    options.intra_op_num_threads = PLAN["cores"]
    # Without optimizations: the models hold kernels that were optimized already.
    for name, value in PLAN["options"].items():
        setattr(options, name, type(getattr(options, name))(value))
    for name, value in PLAN["config"].items():
        options.add_session_config_entry(name, value)
    session = ort.InferenceSession(str(FOLDER / model["file"]), options, PLAN["providers"])
    feeds = {each["name"]: draw_input(each) for each in model["inputs"]}
    feeds = {name: ort.OrtValue.ortvalue_from_numpy(each) for name, each in feeds.items()}
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_ortvalue_input(name, value)
    outputs = [each.name for each in session.get_outputs()]

    def run(kept=feeds):  # The binding does not keep them.
        for name in outputs:
            binding.bind_output(name)
        session.run_with_iobinding(binding)

    return run


def medians(runs, seconds=0.5):
    """The median time of each, in milliseconds; they run in turn."""
    times = [[] for _ in runs]
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(times[0]) < 5:
        for run, own in zip(runs, times):
            start = time.perf_counter()
            run()
            own.append(1000 * (time.perf_counter() - start))
    return [statistics.median(own) for own in times]

'''

_SHOWN = """before, after = (statistics.median(side) for side in zip(*rounds))
ratio = statistics.median(new / old for old, new in rounds)
print(f"before {before:.4g} ms, after {after:.4g} ms, ratio {ratio:.3f}")
"""

_IN_TURN = (
    '''"""Times before.onnx and after.onnx in turn, and prints both medians and their ratio.

Type `python repro.py`. It needs numpy and onnxruntime, and takes some five seconds.
"""

import json
import statistics
import time
from pathlib import Path

import onnxruntime as ort
from run import draw_input, draw_weights
'''
    + _LOAD
    + """
rounds = [medians([load(model) for model in PLAN["models"]]) for _ in range(9)]
"""
    + _SHOWN
)

_UPGRADE = (
    '''"""Times before.onnx in one Python and after.onnx in another, and prints the ratio.

Type `new/bin/python repro.py old/bin/python`. Both need numpy and onnxruntime. It takes some
twenty seconds.
"""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import onnxruntime as ort
from run import draw_input, draw_weights
'''
    + _LOAD
    + '''
def ask(python, number):
    """The median of one model in a process of its own."""
    command = [python, __file__, "--time", str(number)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


if sys.argv[1:2] == ["--time"]:
    print(medians([load(PLAN["models"][int(sys.argv[2])])])[0])
    sys.exit()
rounds = [[ask(sys.argv[1], 0), ask(sys.executable, 1)] for _ in range(9)]
'''
    + _SHOWN
)


def write_repro(*, is_upgrade: bool) -> str:
    """The program for two models on one engine, or for two versions of it."""
    return _UPGRADE if is_upgrade else _IN_TURN
