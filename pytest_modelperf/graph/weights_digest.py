"""The digest of the trained values of a model, whatever its graph is.

Graph optimizations and exporters name, order and connect weights in other ways, and add or fold
small constants. The digest is that of the bytes of all large float tensors, each once and in no
order, so it stays the same; training changes it.
"""

from __future__ import annotations

import hashlib
from math import prod

import numpy as np

from pytest_modelperf.graph.model_file import ModelFile, dtype_name
from pytest_modelperf.graph.stored_tensors import walk_stored

# Fewer elements are a setting of an operator or of an exporter, such as a scale.
_LEAST_ELEMENTS = 16


def digest_weights(file: ModelFile) -> str:
    """The digest of all trained values, as 32 hexadecimal digits; reads every weight."""
    return file.digest_once("weights", lambda: _digest(file))


def _digest(file: ModelFile) -> str:
    digests = set()
    for stored in walk_stored(file.proto):
        dtype = dtype_name(stored.tensor.data_type) or ""
        if "float" in dtype and prod(stored.tensor.dims) >= _LEAST_ELEMENTS:
            values = np.ascontiguousarray(file.read_tensor(stored.tensor))
            digest = hashlib.blake2b(dtype.encode(), digest_size=16)
            digest.update(values.tobytes())
            digests.add(digest.digest())
    return hashlib.blake2b(b"".join(sorted(digests)), digest_size=16).hexdigest()
