"""Describe in a sentence where outputs begin to differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pytest_modelperf.comparing.changes import FirstDifference, OutputChange, TensorDifference
from pytest_modelperf.comparing.figures import format_figure
from pytest_modelperf.comparing.limits import OUTPUTS
from pytest_modelperf.comparing.records import CaseComparison
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.words import count_of, shorten_list

_LISTED = 4
# A difference from zero cannot be given as a share.
_WAS_ZERO = "was 0 everywhere before"


def output_lines(case: CaseComparison) -> Iterator[str]:
    """Yield how far the outputs of a case differ, and where the difference begins."""
    count = len(case.outputs)
    if case.outputs and all(is_equal(output) for output in case.outputs):
        are = "the output is" if count == 1 else f"all {count} outputs are"
        yield f"{are} equal on the same inputs"
    elif not any(metric.name == OUTPUTS for metric in case.metrics):
        shares = [output.share for output in case.outputs if output.share is not None]
        if shares and math.isinf(max(shares)):
            yield f"they differ: one {_WAS_ZERO}"
        elif shares:
            sure = " or more" if any(output.is_least for output in case.outputs) else " at most"
            yield f"they differ by {_share(max(shares))} of their largest value{sure}"
    for output in case.outputs:
        if output.difference is not None:
            yield f"{printable(output.name)}: {printable(output.difference)}"
    if case.first_difference is not None:
        yield describe_first_difference(case.first_difference)


def is_equal(output: OutputChange) -> bool:
    """Whether the output of both models is equal bit by bit."""
    return output.difference is None and output.max_absolute == 0 and not output.is_least


def describe_first_difference(found: FirstDifference) -> str:
    """Return `y differs first at /layer3/Softmax (Softmax): its 'p' differs by 3 %, ...`."""
    where = f"{printable(found.tensor.layer)} ({printable(found.tensor.op_type)})"
    output, name = printable(found.output), _quoted(found.tensor.name)
    if found.is_fused:
        return (
            f"{output} no longer differs if {name} of {where} is an output, too: the difference "
            f"comes from how the engine fuses that layer with {_names(found.readers)}"
        )
    text = f"{output} differs first at {where}: its {name} differs {_by(found.tensor)}"
    known = [each for each in found.inputs if each.values.share is not None]
    if known:
        largest = max(known, key=lambda each: each.values.share or 0.0)
        others = "" if len(known) == 1 else f" and {count_of(len(known) - 1, 'other input')}"
        text += f", and {_quoted(largest.name)}{others} before it "
        if largest.values.share:
            text += _by(largest) + (" at most" if others else "")
        else:
            text += "are equal" if others else "is equal"
    elif not found.others:
        text += ", and nothing before it"
    if found.others:
        text += f"; not compared before it: {_names(found.others)}"
    return text


def _names(layers: Sequence[str]) -> str:
    return shorten_list([printable(each) for each in layers], _LISTED)


def _by(tensor: TensorDifference) -> str:
    share = tensor.values.share
    if share is None:
        return f"({printable(tensor.values.difference or '')})"
    return f"(it {_WAS_ZERO})" if math.isinf(share) else f"by {_share(share)}"


def _share(share: float) -> str:
    return format_figure(OUTPUTS, share)


def _quoted(name: str) -> str:
    return f"'{printable(name)}'"
