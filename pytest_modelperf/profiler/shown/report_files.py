"""Check that reports about models can be written, and do not overwrite a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pytest_modelperf.errors import ModelPerfError
from pytest_modelperf.files.output import Target, check_outputs, is_stdout


def check_report_files(
    targets: Mapping[str, Target | None], models: Sequence[Target], input_file: Target | None = None
) -> bool:
    """Return whether standard output is free, because no report is written to it.

    `targets` are the reports, by their options. Raises UsageError if a report would overwrite a
    model, its external data, or the input file.
    """
    inputs = [*models, *([] if input_file is None else [input_file])]
    # A new file cannot overwrite a model, so models, which take time to read, are not read for it.
    if any(_is_file(target) for target in targets.values()):
        inputs += [path for model in models for path in _files_of(Path(model))]
    return check_outputs(targets, *inputs)


def _is_file(target: Target | None) -> bool:
    if target is None or is_stdout(target):
        return False
    try:
        return Path(target).is_file()
    except OSError:
        # The check of the outputs reports why it cannot be written.
        return False


def _files_of(model: Path) -> Iterator[Path]:
    """Yield the external files of a model, or all files of a folder with a baseline."""
    if model.is_dir():
        yield from model.iterdir()
    elif model.is_file():
        from pytest_modelperf.graph.model_file import external_files, open_model

        try:
            yield from external_files(open_model(model)).values()
        except ModelPerfError:
            # The command or the test reports the error when it reads the model.
            return
