"""Facts about the weights of a plan, read from the file next to it."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from pytest_modelperf.profiler.worker.sessions import (
    describe_spans,
    move_spans,
    read_spans,
)

Array: TypeAlias = npt.NDArray[np.generic]

FLOATS = 1 << 16


def described(path: Path, *arrays: Array, dtype: str) -> list[tuple[bytes, float]]:
    """The facts of arrays that follow each other in a file."""
    path.write_bytes(b"".join(array.tobytes() for array in arrays))
    spans, offset = [], 0
    for array in arrays:
        spans.append((offset, array.nbytes, dtype))
        offset += array.nbytes
    return describe_spans(str(path), spans)


def test_equal_weights_have_one_digest(tmp_path: Path) -> None:
    first, second = np.arange(100, dtype=np.float32), np.arange(1, 101, dtype=np.float32)
    one, other, again = described(tmp_path / "w", first, second, first, dtype="float32")
    assert one == again
    assert one[0] != other[0]


@pytest.mark.parametrize(
    ("dtype", "normal", "subnormal"),
    [("float32", 1.0, 1e-40), ("float64", 1.0, 1e-310), ("float16", 1.0, 1e-7)],
)
def test_subnormal_numbers_are_counted_of_either_sign_and_zeros_are_not(
    tmp_path: Path, dtype: str, normal: float, subnormal: float
) -> None:
    values = [normal, -normal, 0.0, -0.0, subnormal, -subnormal, float("inf"), float("nan")]
    ((_, share),) = described(tmp_path / "w", np.array(values, dtype), dtype=dtype)
    assert share == 0.25


def test_the_bits_of_bfloat16_are_read(tmp_path: Path) -> None:
    codes = np.array([0x3F80, 0x0001, 0x8001, 0x0080], np.uint16)
    ((_, share),) = described(tmp_path / "w", codes, dtype="bfloat16")
    assert share == 0.5


def test_integers_have_no_subnormal_numbers(tmp_path: Path) -> None:
    ((_, share),) = described(tmp_path / "w", np.arange(9, dtype=np.int64), dtype="int64")
    assert share == 0.0


def test_the_first_and_the_last_number_of_a_large_weight_count(tmp_path: Path) -> None:
    plain = np.zeros(40 * FLOATS, np.float32)
    digests = set()
    for place in (None, 0, len(plain) - 1):
        weight = plain.copy()
        if place is not None:
            weight[place] = 1.0
        ((digest, _),) = described(tmp_path / "w", weight, dtype="float32")
        digests.add(digest)
    assert len(digests) == 3


def test_a_file_that_ends_too_soon_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(bytes(10))
    with pytest.raises(ValueError, match="too soon"):
        describe_spans(str(tmp_path / "w"), [(4, 12, "float32")])


def test_spans_are_read_whole(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(b"#first##second")
    assert read_spans(str(tmp_path / "w"), [(8, 6), (1, 5)]) == [b"second", b"first"]
    with pytest.raises(ValueError, match="too soon"):
        read_spans(str(tmp_path / "w"), [(8, 7)])


def test_weights_are_copied_to_their_new_places(tmp_path: Path) -> None:
    source, target = tmp_path / "old", tmp_path / "new"
    large = bytes(range(256)) * 4096
    source.write_bytes(b"#" * 16 + b"first" + large)
    move_spans(str(source), str(target), [(16, 5, 0), (21, len(large), 64)])
    assert target.read_bytes() == b"first".ljust(64, b"\0") + large


def test_a_copy_of_a_file_that_ends_too_soon_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "old"
    source.write_bytes(b"short")
    with pytest.raises(ValueError, match="end too soon"):
        move_spans(str(source), str(tmp_path / "new"), [(0, 6, 0)])
