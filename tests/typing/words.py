"""How users call the fixture and fill the markers: mypy checks this, and nothing runs it.

An argument that must be refused is marked, and mypy complains of a mark that is not needed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_modelperf import BudgetWords, CaseWords, ModelPerf, api

SHARED: CaseWords = {"batch_size": [1, 8], "dims": {"seq": (64, 128)}, "tolerance": {"p50": 0.02}}
LIMITS: BudgetWords = {"latency_ms": 12, "macs": "4.1G"}


@pytest.mark.perf_case("model.onnx", **SHARED)
@pytest.mark.perf_budget(**LIMITS)
def marked() -> None:
    pass


def called(modelperf: ModelPerf) -> None:
    modelperf("model.onnx", batch_size=8, cores=2, inputs="ids:i64:1x64", engine=None)
    modelperf.check(Path("model.onnx"), sparsity=True, phase="step", measure="always")
    modelperf.check(print, max_seconds=3, engine_options={"a.b": 1})
    modelperf.compare("old.onnx", "new.onnx", dims=[{"seq": 64, "past": 0}])
    modelperf.compare("old.onnx", "new.onnx", **SHARED)


def measured_in_a_notebook() -> None:
    api.profile("model.onnx", batch_size=[1, 8], max_seconds=3)
    api.compare("old.onnx", "new.onnx", **SHARED)
    api.sweep("model.onnx", streams=2, cores=[1, 2])
    api.tune("model.onnx", values={"enable_mem_pattern": ["0"]}, cores=2)
    api.whatif("model.onnx", prune=[0.5], dims={"seq": 64})


def refused(modelperf: ModelPerf) -> None:
    modelperf("model.onnx", batch_sizes=8)  # type: ignore[call-arg]  # no such word
    modelperf("model.onnx", batch_size="8")  # type: ignore[arg-type]  # a text is not a size
    modelperf.check("model.onnx", measure="never")  # type: ignore[call-overload]  # no such choice
    modelperf.check("model.onnx", timeout=3)  # type: ignore[call-overload]  # a setting of the run
    modelperf.compare("old.onnx", "new.onnx", phase="steps")  # type: ignore[arg-type]  # likewise
    api.profile("model.onnx", batch_sizes=8)  # type: ignore[call-arg]  # no such word
