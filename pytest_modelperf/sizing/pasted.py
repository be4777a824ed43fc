"""Found sizes to paste: as a command, as a table of `pyproject.toml`, as arguments of a marker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from pytest_modelperf.errors import ModelPerfError, OpenSizesError
from pytest_modelperf.graph.load import Asked
from pytest_modelperf.profiler.hookspecs import Extensions, Operators
from pytest_modelperf.profiler.sampling.setup import Setup
from pytest_modelperf.sizing.finding import find_sizes
from pytest_modelperf.sizing.records import FoundSizes
from pytest_modelperf.spec.declaring import path_key
from pytest_modelperf.text.escaping import printable, quoted_text, shell_word, toml_key

GUESSED = "The work that is measured depends on a guessed size: give that of your data."


def render_advice(found: FoundSizes, paste: str) -> str:
    """Return the text to paste, with the reason for each of its sizes."""
    lead = "One inference ran with these sizes" if found.has_run else "These sizes fit by shapes"
    why = f" (no inference was tried: {found.not_run})" if found.not_run else ""
    pasted = "\n".join(f"  {line}" for line in paste.splitlines())
    reasons = "\n".join(reason_lines(found))
    return f"{lead}{why}; give your own if you know them:\n\n{pasted}\n\n{reasons}"


def render_command(found: FoundSizes, typed: Sequence[str]) -> str:
    """Return the typed command with the found sizes: `modelperf profile m.onnx --dim seq=64`.

    `typed` are its words without the program.
    """
    return " ".join(["modelperf", *map(shell_word, with_sizes(found, typed))])


def with_sizes(found: FoundSizes, typed: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command, with the found sizes instead of those for their dimensions."""
    names = found.sizes.keys()
    kept: list[str] = []
    words = iter(typed)
    for word in words:
        option, equals, value = word.partition("=")
        if word == "--dim":
            value = next(words, "")
        elif option != "--dim" or not equals:
            kept.append(word)
            continue
        if not any(value.startswith(f"{name}=") for name in names):
            kept += ["--dim", value]
    dims = (word for each in found.dims for word in ("--dim", f"{each.name}={each.size}"))
    inputs = (word for text in found.input_texts for word in ("--input", text))
    # Options must precede a `--`.
    end = kept.index("--") if "--" in kept else len(kept)
    return (*kept[:end], *dims, *inputs, *kept[end:])


def render_table(found: FoundSizes, path: str) -> str:
    """Return the table for the model at a path below the root, to paste into `pyproject.toml`."""
    return "\n".join(
        [f"[tool.modelperf.models.{quoted_text(path_key(path))}]", *table_lines(found)]
    )


def table_lines(found: FoundSizes) -> Iterator[str]:
    """Yield the keys of the table of a model: `dims` and `inputs`, unless these are empty."""
    if found.dims:
        sizes = ", ".join(f"{toml_key(each.name)} = {each.size}" for each in found.dims)
        yield f"dims = {{{sizes}}}"
    if found.inputs:
        yield f"inputs = [{', '.join(map(quoted_text, found.input_texts))}]"


def render_arguments(found: FoundSizes) -> str:
    """Return the arguments of a marker or of the fixture: `dims={"seq": 64}`."""
    parts = []
    if found.dims:
        sizes = ", ".join(f"{quoted_text(each.name)}: {each.size}" for each in found.dims)
        parts.append(f"dims={{{sizes}}}")
    if found.inputs:
        parts.append(f"inputs=[{', '.join(map(quoted_text, found.input_texts))}]")
    return ", ".join(parts)


def reason_lines(found: FoundSizes) -> Iterator[str]:
    """Yield one line for each size and value, with its reason."""
    for size in found.dims:
        reason = f"a guess: {size.reason}" if size.is_guess else size.reason
        yield f"{printable(size.name)}={size.size} in {', '.join(size.places)}: {reason}"
    for given in found.inputs:
        yield f"{printable(given.text)}: {given.reason}"


# -- the sizes that help with an error about sizes


def sizes_for(error: ModelPerfError, *, runs: bool = True) -> FoundSizes | None:
    """Find sizes for the model of an error, or return None if the error is not about sizes.

    The sizes that the user gave are kept, unless no other sizes fit together with them. With
    `runs`, one inference runs on this machine.
    """
    asked = error.asked
    if not isinstance(asked, Asked) or asked.binding.phase is not None:
        return None
    operators = Operators()
    for op, rule in asked.shape_rules.items():
        operators.register(op, shapes=rule)
    extensions, setup = Extensions(operators), Setup() if runs else None
    try:
        found = find_sizes(asked.file, asked.binding, setup=setup, extensions=extensions)
        if not found.is_found and asked.binding.dims:
            free = replace(asked.binding, dims={})
            found = find_sizes(asked.file, free, setup=setup, extensions=extensions)
    except ModelPerfError:
        # The user needs to see the first error, not this one.
        return None
    return found if found.is_found or isinstance(error, OpenSizesError) else None
