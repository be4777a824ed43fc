"""The files of a reduced pair: models without weights, which are drawn later, and its JSON."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_modelperf.files.output import write_folder
from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.weightless import leave_weights_out, make_anonymous, write_weightless
from pytest_modelperf.graph.weights.run_plan import (
    PLAN_FILE,
    PROGRAM_FILE,
    RunModel,
    RunPlan,
    describe_input,
    draw_inputs,
    draw_weights,
    write_run,
)
from pytest_modelperf.profiler.engines.session_facts import session_attributes
from pytest_modelperf.profiler.inputs.made import Feed
from pytest_modelperf.profiler.machine.facts import MachineFacts
from pytest_modelperf.profiler.pairs.cuts import Cut, CutPair
from pytest_modelperf.profiler.sampling.duet import AFTER, BEFORE
from pytest_modelperf.profiler.worker.working_folder import working_folder
from pytest_modelperf.reducing.records import REDUCTION, Reduction
from pytest_modelperf.reducing.report import write_readme, write_repro
from pytest_modelperf.report.document import dump_document

# Only this provider reports its plans.
_PROVIDERS = ("CPUExecutionProvider",)
# The value of ORT_DISABLE_ALL, with which the kernels run unchanged.
_AS_THEY_ARE = 0
# Streams of weights are numbered from 1, those of inputs from here.
_INPUT_STREAMS = 1 << 20


class PairFiles(Struct, frozen=True):
    """A folder with `before.onnx` and `after.onnx`, and the notes to draw their weights from."""

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
        """Yield the pair with drawn weights and inputs, and remove the weights afterwards."""
        before, after = self.plan.models
        try:
            yield CutPair(self._draw(before, cut.before), self._draw(after, cut.after))
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
    """Yield the files of a pair in a folder that is removed at the end of the context."""
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
    shared = leave_weights_out(open_model(cut.path), f"{name}.weights")
    inputs = []
    for each, feed in cut.feeds.items():
        # An input that both models have gets the same numbers in both.
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


# -- the folder or archive of a reduced pair


_README_FILE, _REPRO_FILE = "README.md", "repro.py"
# The files that are written into a folder, or removed from it.
REPLACED_FILES = (
    _README_FILE, _REPRO_FILE, PROGRAM_FILE, PLAN_FILE,
    *(f"{side}.{kind}" for side in (BEFORE, AFTER) for kind in ("onnx", "weights")),
)  # fmt: skip


def deliver(found: Reduction, files: PairFiles, target: str, machine: MachineFacts) -> None:
    """Add the programs and the README to the files of a pair, and write all to `target`.

    A name that ends in `.zip` is an archive. Weights that were drawn for an earlier pair are
    removed.
    """
    write_run(files.plan, files.folder)
    texts = {
        _README_FILE: write_readme(found, machine),
        _REPRO_FILE: write_repro(is_upgrade=found.is_upgrade),
    }
    contents = {path.name: path.read_bytes() for path in sorted(files.folder.iterdir())}
    write_folder(
        contents | {name: text.encode() for name, text in texts.items()},
        target,
        stale=[model.weights_file for model in files.plan.models],
    )


def dump_reduction(found: Reduction, target: str) -> str:
    """Return the reduction as JSON text. Its files are at `target`."""
    document = REDUCTION.of(found)
    search, written = found.search, document["written"]
    kept = () if search is None else search.kept
    for index, unit in enumerate(document["units"]):
        unit["kept"] = index in kept
    if written is not None:
        is_smallest = search is not None and search.is_smallest
        written |= {"target": target, "kernels": found.kernels, "smallest": is_smallest}
    return dump_document(document)
