"""The peaks of a machine, measured by short runs of the engine itself, and kept in a file."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import TypeAlias, TypeVar

from msgspec import Struct, field

from pytest_modelperf.errors import BaselineError, MeasureError
from pytest_modelperf.files.documents import DocumentFile, Positive, require_file
from pytest_modelperf.files.store import user_cache_folder, write_file
from pytest_modelperf.graph.copies import nodes_by_name
from pytest_modelperf.graph.model_file import ModelSource
from pytest_modelperf.graph.plans.plan import read_plan
from pytest_modelperf.graph.sample_models import PRODUCTS, memory_model, product_model
from pytest_modelperf.profiler.hookspecs import Extensions
from pytest_modelperf.profiler.layers import attribute
from pytest_modelperf.profiler.machine.hardware import MachineFacts
from pytest_modelperf.profiler.measurements import EngineFacts, devices_of
from pytest_modelperf.profiler.model_in_worker import (
    CasePlace,
    Watch,
    alone_at,
    make_workload,
    start_on,
)
from pytest_modelperf.profiler.prepare import Model, prepare
from pytest_modelperf.profiler.records import Profile
from pytest_modelperf.profiler.request import ProfileRequest
from pytest_modelperf.profiler.sampling.kernels import kernel_run_of
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.profiler.worker.client import ProcessWorker
from pytest_modelperf.report.document import SCHEMA, dump_document
from pytest_modelperf.roofline.records import (
    Bandwidth,
    KernelWork,
    Peaks,
    Roofline,
    Rooflines,
    kernel_works,
    place_layers,
    same_precision,
)
from pytest_modelperf.text.escaping import printable

# The peaks of a machine take a few kilobytes.
_MOST_BYTES = 1 << 20


class KeptPeaks(Struct, frozen=True):
    """The peaks in a file, or a note if they cannot be read."""

    peaks: tuple[Peaks, ...] = ()
    note: str | None = None


class PeaksFile(Struct, frozen=True, kw_only=True):
    """The content of a file: the peaks of one kind of machine."""

    schema: Positive
    peaks: tuple[Peaks, ...]


class _NewerError(Exception):
    """The file was written by a later version, and is not changed."""


def cache_folder() -> Path:
    return user_cache_folder() / "peaks"


def find_peaks(folder: Path, machine_key: str) -> KeptPeaks:
    """Return all kept peaks of a machine, or a note if there is a problem with the file."""
    path = _path(folder, machine_key)
    name = printable(str(path))
    try:
        return KeptPeaks(_read(path))
    except FileNotFoundError:
        return KeptPeaks()
    except _NewerError:
        return KeptPeaks(
            (),
            f"{name} was written by a later version, so the peaks that are measured now are not "
            "kept",
        )
    except OSError as error:
        reason = error.strerror or str(error)
        return KeptPeaks((), f"{name} cannot be read: {reason}. The peaks are measured again")
    except BaselineError:
        return KeptPeaks((), f"{name} has no peaks that can be read: they are measured again")


def keep_peaks(folder: Path, peaks: Peaks) -> str | None:
    """Add peaks to those of their machine, replacing old ones. Return a note if that fails."""
    path = _path(folder, peaks.machine_key)
    try:
        others = _read(path)
    except _NewerError:
        return None
    except (BaselineError, OSError):
        others = ()
    kept = [other for other in others if other.subject != peaks.subject]
    document = PeaksFile(schema=SCHEMA, peaks=(*kept, peaks))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_file(path, dump_document(document).encode())
    except OSError as error:
        reason = error.strerror or str(error)
        return f"{printable(str(path))} cannot be written: {reason}. The peaks are not kept"
    return None


def _path(folder: Path, machine_key: str) -> Path:
    return folder / f"{machine_key}.json"


def _read(path: Path) -> tuple[Peaks, ...]:
    require_file(path)
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    document_file = DocumentFile(path)
    if len(content) > _MOST_BYTES:
        raise document_file.error("the file is too large")
    document = document_file.parse(content)
    schema = document.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise _NewerError
    found = document_file.convert(document, PeaksFile)
    if any(each.machine_key != path.stem for each in found.peaks):
        raise document_file.error("the peaks belong to another machine")
    return found.peaks


# -- the peaks of a machine


MEASURING = "measuring the machine's peaks"

MIN_RUNS, MAX_RUNS = 3, 25
# The clock of a profile cannot resolve the time to move fewer bytes.
FEWEST_BYTES = 1 << 18
# A square product of twice the size takes this many times the operations.
_TIMES_AS_MANY = 8
_QUICK_NS = 40_000_000
_NS_PER_S = 1e9


class PeakEffort(Struct, frozen=True, kw_only=True):
    """The models that are run to measure peaks, and how often.

    `sizes` are the rows and columns of the matrices that are multiplied. Larger ones are left out
    once a product is slow. `memory_bytes` range from sizes that fit into any cache to sizes that
    hardly any cache holds. There are several `passes` because a neighbour rarely disturbs all of
    them.
    """

    precisions: tuple[str, ...] = PRODUCTS
    sizes: tuple[int, ...] = (512, 1024, 2048, 4096)
    memory_bytes: tuple[int, ...] = tuple(mebibytes << 20 for mebibytes in (1, 4, 16, 128))
    passes: int = 3
    block_ns: int = 40_000_000


EFFORT = PeakEffort()
MeasurePeaks: TypeAlias = Callable[[str, EngineFacts, Setup, CasePlace], Peaks]


def find_rooflines(  # noqa: PLR0913  # the cases, how to measure, and where to keep peaks
    profile: Profile,
    setup: Setup,
    folder: Path,
    watch: Watch = lambda _: None,
    *,
    measures_anew: bool = False,
    measure: MeasurePeaks | None = None,
) -> Rooflines:
    """Return every measured case under its machine's peaks. Missing peaks are measured.

    The default of `measure` is `measure_peaks`.
    """
    machine = profile.machine or MachineFacts()
    finder = _PeakFinder(machine.key, setup, folder, measure or measure_peaks, measures_anew)
    found: dict[str, Roofline] = {}
    for number, case in enumerate(profile.cases, 1):
        if case.measured is None:
            continue
        if case.measured.layer_times is None:
            finder.note(f"{case.case.id}: no roofline, because its layers have no times")
            continue
        devices = devices_of(case.measured.layer_times)
        if devices:
            finder.note(
                f"{case.case.id}: no roofline, because its layers on {devices} have the time that "
                "it takes to start them"
            )
            continue
        place = CasePlace(case.case, number, len(profile.cases), watch)
        try:
            found[case.case.id] = place_layers(case, finder.peaks_of(case.measured.engine, place))
        except MeasureError as error:
            finder.note(f"{case.case.id}: no roofline: {error}")
    return Rooflines(found, tuple(finder.notes))


class _PeakFinder(Struct):
    """A finder of a machine's peaks for several engines and core counts.

    Missing peaks, and those to measure again, are measured once and kept.
    """

    machine_key: str
    setup: Setup
    folder: Path
    measure: MeasurePeaks
    measures_anew: bool
    known: list[Peaks] = field(default_factory=list)
    # The keys are the notes in order, each once.
    notes: dict[str, None] = field(default_factory=dict)

    def note(self, text: str | None) -> None:
        if text:
            self.notes[text] = None

    def peaks_of(self, engine: EngineFacts, place: CasePlace) -> Peaks:
        """Return the peaks of the engine on the cores of the case.

        Raises MeasureError if the engine runs none of the models.
        """
        cores = place.case.cores
        known = self.first(self.known, engine, cores)
        if known is not None:
            return known
        kept = find_peaks(self.folder, self.machine_key)
        peaks = None if self.measures_anew else self.first(kept.peaks, engine, cores)
        is_new = peaks is None
        if peaks is None:
            peaks = self.measure(self.machine_key, engine, self.setup, place)
            self.note(kept.note)
        fewer = [
            other
            for count in range(1, cores)
            for other in [self.first((*self.known, *kept.peaks), engine, count)]
            if other is not None
        ]
        if any(peaks.are_below(other) for other in fewer):
            # More cores are at least as fast as fewer, so other processes used them.
            is_new = True
            again = self.measure(self.machine_key, engine, self.setup, place)
            peaks = again.raised_by(peaks)
            if any(peaks.are_below(other) for other in fewer):
                self.note(
                    f"a peak of {cores} cores is below that of fewer: others used the machine "
                    "while it was measured, twice"
                )
        if is_new:
            self.note(keep_peaks(self.folder, peaks))
        self.known.append(peaks)
        return peaks

    def first(self, peaks: Sequence[Peaks], engine: EngineFacts, cores: int) -> Peaks | None:
        return next((p for p in peaks if p.are_of(self.machine_key, engine, cores)), None)


def measure_peaks(
    machine_key: str,
    engine: EngineFacts,
    setup: Setup,
    place: CasePlace,
    effort: PeakEffort = EFFORT,
) -> Peaks:
    """Measure the peaks of the engine on this machine.

    A precision has no peak if the engine refuses the product or computes it in another precision.
    Raises MeasureError if the engine runs none of the models.
    """
    cores = place.case.cores
    with alone_at(place), start_on(setup, cores) as worker:
        place.tell(MEASURING)
        worker.use_engine(setup.engine, setup.options)
        bench = _Bench(worker, setup, cores, effort.block_ns)
        found = _find_products(bench, effort)
        sums = [bench.load(memory_model(nbytes)) for nbytes in effort.memory_bytes]
        for _ in range(effort.passes):
            for model in (*found.products, *sums):
                bench.run(model)
    macs_per_second: dict[str, float] = {}
    bytes_per_second: dict[int, float] = {}
    for kernel in (kernel for model in found.products for kernel in bench.kernels_of(model)):
        if kernel.work is not None and kernel.work.macs:
            _raise(macs_per_second, _precision(kernel), kernel.work.macs, kernel.ns)
    for kernel in (kernel for model in sums for kernel in bench.kernels_of(model)):
        if kernel.work is not None and kernel.work.nbytes >= FEWEST_BYTES:
            _raise(bytes_per_second, kernel.work.nbytes, kernel.work.nbytes, kernel.ns)
    if not bytes_per_second:
        raise MeasureError(
            f"{engine.name} does not report the times from which the memory bandwidth follows."
        )
    return Peaks(
        machine_key=machine_key,
        engine=engine.name,
        version=engine.version,
        options=dict(engine.options),
        cores=cores,
        macs_per_second=macs_per_second,
        runs_as=found.runs_as,
        bandwidths=tuple(Bandwidth(*each) for each in sorted(bytes_per_second.items())),
        measured=dt.datetime.now(dt.timezone.utc).date(),
    )


_Key = TypeVar("_Key", int, str)


def _raise(best: dict[_Key, float], key: _Key, amount: int, ns: float | None) -> None:
    if ns:
        best[key] = max(best.get(key, 0.0), _NS_PER_S * amount / ns)


def _precision(kernel: KernelWork) -> str:
    """Return the precision of the computation or, if not reported, of the product."""
    return kernel.precision or same_precision(kernel.layer.precision) or ""


class _Products(Struct):
    """The products that give a peak, and the precision in which each is computed."""

    products: list[_Loaded] = field(default_factory=list)
    runs_as: dict[str, str] = field(default_factory=dict)


def _find_products(bench: _Bench, effort: PeakEffort) -> _Products:
    found = _Products()
    refusal: MeasureError | None = None
    for written in effort.precisions:
        for size in effort.sizes:
            try:
                model = bench.load(product_model(size, written))
                kernels = bench.run(model)
            except MeasureError as error:
                # The engine lacks a kernel for this precision, so it has no peak.
                refusal = refusal or error
                break
            product = max(kernels, key=lambda kernel: kernel.work.macs if kernel.work else 0)
            precision = _precision(product)
            is_known = precision in [p for w, p in found.runs_as.items() if w != written]
            found.runs_as[written] = precision
            if is_known:
                break
            found.products.append(model)
            if (product.ns or 0.0) * _TIMES_AS_MANY > _QUICK_NS:
                break
    if refusal is not None and not found.products:
        raise refusal
    return found


class _Loaded(Struct, frozen=True):
    """A model whose file and inputs the worker has. `feed` names the inputs."""

    model: Model
    path: str
    feed: str


class _Block(Struct, frozen=True):
    mean_ns: float
    kernels: tuple[KernelWork, ...]


class _Bench(Struct):
    """A worker that runs small models, each block of runs in a session of its own."""

    worker: ProcessWorker
    setup: Setup
    cores: int
    block_ns: int
    loaded: int = 0
    quietest: dict[str, _Block] = field(default_factory=dict)

    def load(self, source: ModelSource) -> _Loaded:
        self.loaded += 1
        feed = f"peak{self.loaded}"
        model = Model.load(source, ProfileRequest(), Extensions())
        workload = make_workload(prepare(model), self.worker, feed)
        inputs = {name: given.to_wire() for name, given in workload.feeds.items()}
        self.worker.ask("inputs", MEASURING, inputs=inputs, feed=feed)
        return _Loaded(model, str(workload.model), feed)

    def run(self, loaded: _Loaded) -> tuple[KernelWork, ...]:
        """Run a short block, and return the work of each kernel.

        The quietest block of each model is kept, because an engine may report averages: one
        disturbed run in a block makes the times of all its kernels wrong. Raises MeasureError if
        the engine reports no times of kernels.
        """
        answers = self.worker.ask(
            "layers",
            f"while {MEASURING}",
            models=[{"model": loaded.path, "folder": None, "feed": loaded.feed, "beside": None}],
            threads=self.cores,
            options=dict(self.setup.options),
            warmup_ns=self.block_ns,
            limits=[(MIN_RUNS, None), (MAX_RUNS, self.block_ns)],
        )
        if answers is None:
            raise MeasureError(f"{self.setup.engine.name} does not report kernel times.")
        run, bound = kernel_run_of(answers[0]), loaded.model.bound
        layers = loaded.model.static.layers
        plan = None if run.plan is None else read_plan(run.plan)
        names = nodes_by_name(bound)
        found = attribute(run, plan, bound.graph, layers, median(run.run_ns), names)
        block = _Block(fmean(run.run_ns), tuple(kernel_works(loaded.model.static, found.times)))
        best = self.quietest.get(loaded.feed, block)
        self.quietest[loaded.feed] = min(best, block, key=lambda each: each.mean_ns)
        return block.kernels

    def kernels_of(self, loaded: _Loaded) -> tuple[KernelWork, ...]:
        return self.quietest[loaded.feed].kernels
