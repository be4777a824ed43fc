"""Profile one model once, with one tool, in this fresh process, and print what that cost as JSON.

With --warm the model is profiled once before, which is not counted.

It imports nothing that it can do without, for its own start is part of what is measured. What
the tools print or warn about goes to standard error; the JSON is all of standard output.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import TypeAlias

Figures: TypeAlias = "dict[str, int | str | None]"
Profiler: TypeAlias = Callable[[str], Figures]


def main(tool: str, model: str, *, sparsity: bool, warm: bool) -> None:
    started = time.perf_counter()
    profile = _TOOLS[tool](sparsity)
    imported = time.perf_counter()
    import_peak_bytes = peak_bytes()
    error = None
    figures: Figures = {}
    if warm:
        with redirect_stdout(sys.stderr):
            profile(model)
    called = time.perf_counter()
    try:
        with redirect_stdout(sys.stderr):
            figures = profile(model)
    except Exception as raised:  # noqa: BLE001  # that a tool raises is a result to be shown
        error = f"{type(raised).__name__}: {raised}"
    done = time.perf_counter()
    report = {
        "import_seconds": imported - started,
        "call_seconds": done - called,
        "import_peak_bytes": import_peak_bytes,
        "peak_bytes": peak_bytes(),
        "error": error,
        **figures,
    }
    print(json.dumps(report))


def peak_bytes() -> int:
    """The most memory that this process has had resident so far.

    Linux hands the peak of the parent's memory on to a child's `ru_maxrss`; the status file
    starts anew with each program, so it is read where there is one.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as status:  # noqa: PTH123  # no pathlib
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def load_ours(sparsity: bool) -> Profiler:  # noqa: FBT001  # called through a table
    """Our static profile; only with `sparsity` are weights read."""
    from pytest_modelperf.profiler.request import ProfileRequest, profile_model

    request = ProfileRequest(sparsity=sparsity)

    def profile(model: str) -> Figures:
        static = profile_model(model, request).cases[0].static
        found = [layer.sparsity for layer in static.layers if layer.sparsity is not None]
        sparsest = max(found, key=lambda s: s.ratio, default=None)
        pattern = None
        if sparsest is not None:
            grouped = sparsest.n_of_m is not None
            shape = "{}:{}".format(*sparsest.n_of_m or ()) if grouped else sparsest.pattern
            pattern = f"{sparsest.ratio:.0%} as {shape}"
        return {
            "macs": static.macs,
            "total_ops": static.macs + static.elementwise_ops,
            "params": static.params,
            "sparsity": pattern,
        }

    return profile


def load_onnx_tool(_sparsity: bool) -> Profiler:  # noqa: FBT001  # called through a table
    """What `onnx_tool.model_profile` does, step by step, without its table being printed.

    It looks at every weight's sparsity whether asked or not. Its one figure is MACs and weighted
    elementwise operations together.
    """
    import onnx_tool

    def profile(model: str) -> Figures:
        graph = onnx_tool.Model(model, {"verbose": False}).graph
        graph.graph_reorder_nodes()
        graph.shape_infer(None)
        graph.profile(exclude_ops=onnx_tool.NoMacsOps)
        found = [n.sparsity for n in graph.nodemap.values() if hasattr(n, "sparsity")]
        sparsest = max(found, key=lambda s: float(s["ratio"]), default=None)
        pattern = None
        if sparsest is not None and sparsest["ratio"]:
            block = "x".join(map(str, sparsest["blocksize"]))
            pattern = f"{sparsest['ratio']:.0%} as {block} ({sparsest['blockratio']:.0%} in blocks)"
        total = round(graph.macs[0])
        return {
            "macs": total,
            "total_ops": total,
            "params": int(graph.params),
            "sparsity": pattern,
        }

    return profile


_TOOLS: dict[str, Callable[[bool], Profiler]] = {"ours": load_ours, "onnx_tool": load_onnx_tool}

if __name__ == "__main__":
    main(
        sys.argv[1],
        sys.argv[2],
        sparsity="--sparsity" in sys.argv[3:],
        warm="--warm" in sys.argv[3:],
    )
