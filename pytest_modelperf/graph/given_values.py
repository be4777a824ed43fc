"""Check the values that a user gives for an input against the type of the input."""

from __future__ import annotations

from math import isfinite

from pytest_modelperf.errors import BindingError
from pytest_modelperf.graph.binding import InputSpec
from pytest_modelperf.graph.weights.numbers import ML_TYPES, number_type
from pytest_modelperf.text.escaping import printable
from pytest_modelperf.text.units import exact_number


def require_fitting_values(spec: InputSpec, model: str) -> None:
    """Raise BindingError if the input's type cannot hold a given value."""
    for value in spec.value or ():
        if not _is_number_of(spec.dtype, value):
            raise BindingError(
                f"the value {exact_number(value)} of the input {printable(spec.name)!r} of "
                f"{model} is not a valid {spec.dtype}. Give another value."
            )


def _is_number_of(dtype: str, value: float) -> bool:
    number = number_type(dtype)
    if number is None:
        return True
    if number.is_float:
        # Some of the smaller floats have no infinity, or no NaN.
        return isfinite(value) or dtype not in ML_TYPES
    return float(value).is_integer() and number.lowest <= value <= number.highest
