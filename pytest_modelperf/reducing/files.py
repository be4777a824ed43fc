"""The models of a reduced pair as files that anybody may have: without weights, which are drawn.

The folder has both models, a program that draws their weights and inputs, and what that reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.graph.anonymous import make_anonymous
from pytest_modelperf.graph.drawn_numbers import describe_input
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.run_plan import RunModel, RunPlan, draw_inputs, draw_weights
from pytest_modelperf.graph.weightless import leave_weights_out, write_weightless
from pytest_modelperf.profiler.engines.session_attributes import session_attributes
from pytest_modelperf.profiler.inputs.made import Feed
from pytest_modelperf.profiler.pairs.cuts import Cut, CutPair
from pytest_modelperf.profiler.sampling.duet import AFTER, BEFORE
from pytest_modelperf.profiler.worker.working_folder import working_folder

# Only this provider tells its plans.
_PROVIDERS = ("CPUExecutionProvider",)
# The value of ORT_DISABLE_ALL: the kernels run as they are.
_AS_THEY_ARE = 0
# Weights have the streams from 1 on; those of inputs begin here.
_INPUT_STREAMS = 1 << 20


class PairFiles(Struct, frozen=True):
    """A folder with `before.onnx` and `after.onnx`, and the notes that their weights come from."""

    folder: Path
    plan: RunPlan
    warnings: tuple[str, ...]

    @property
    def sizes(self) -> tuple[int, int]:
        """The sizes of both models without their weights."""
        before, after = ((self.folder / m.file).stat().st_size for m in self.plan.models)
        return before, after

    @contextmanager
    def drawn(self, cut: CutPair) -> Iterator[CutPair]:
        """The pair with its drawn weights and inputs, which are removed after that."""
        before, after = self.plan.models
        try:
            yield CutPair(
                self._draw(before, cut.before),
                self._draw(after, cut.after),
            )
        finally:
            for model in self.plan.models:
                (self.folder / model.weights_file).unlink(missing_ok=True)

    def _draw(self, model: RunModel, cut: Cut) -> Cut:
        draw_weights(model, self.folder)
        drawn = draw_inputs(model).items()
        feeds = {
            name: Feed(own.dtype, array)
            for (name, array), own in zip(drawn, cut.feeds.values(), strict=True)
        }
        return replace(cut, path=self.folder / model.file, feeds=feeds)


@contextmanager
def pair_files(cut: CutPair, cores: int, *, is_anonymous: bool) -> Iterator[PairFiles]:
    """The files of a pair in a folder that goes with the context."""
    streams: dict[_Key, int] = {}
    with working_folder("reduced") as place:
        folder = place / "pair"
        folder.mkdir()
        made = [
            _write_model(folder, name, own, streams, is_anonymous=is_anonymous)
            for name, own in ((BEFORE, cut.before), (AFTER, cut.after))
        ]
        session = session_attributes(cut.after.options)
        plan = RunPlan(
            cores=cores,
            providers=_PROVIDERS,
            options={**session.options, "graph_optimization_level": _AS_THEY_ARE},
            config=session.config,
            models=tuple(model for model, _ in made),
        )
        yield PairFiles(folder, plan, tuple(dict.fromkeys(d for _, own in made for d in own)))


# The name, the type and the shape of an input.
_Key: TypeAlias = tuple[str, str, tuple[int, ...]]


def _write_model(
    folder: Path, name: str, cut: Cut, streams: dict[_Key, int], *, is_anonymous: bool
) -> tuple[RunModel, tuple[str, ...]]:
    """One model without its weights, with the notes on these, and doubts about them."""
    shared = leave_weights_out(open_model(cut.path), f"{name}.weights")
    inputs = []
    for each, feed in cut.feeds.items():
        # An input of both models has the same numbers in both.
        key = each, feed.dtype, feed.array.shape
        stream = streams.setdefault(key, _INPUT_STREAMS + len(streams))
        inputs.append(describe_input(each, feed.dtype, feed.array, stream, shared.texts, name))
    if is_anonymous:
        renamed = make_anonymous(shared.proto)
        shared = replace(shared, proto=renamed.proto)
        inputs = [replace(each, name=renamed.values[each.name]) for each in inputs]
    model = RunModel(
        file=f"{name}.onnx",
        weights_file=shared.weights_file,
        weights=shared.weights,
        inputs=tuple(inputs),
    )
    write_weightless(shared, folder / model.file)
    return model, shared.doubts
