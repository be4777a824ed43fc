# Models with state: the prefill of each prompt is a case, and so are the steps after it.
# Make the model once:  python make_decoder.py models
# Then type:            pytest --modelperf
"""What the answers of our language model may cost."""

import pytest


@pytest.mark.perf_case("models/decoder.onnx", prompt=[32, 64], generate=16)
@pytest.mark.perf_budget(ttft_ms=500, token_ms=200, cache_bytes_per_token=4096)
def test_decoder():
    """Runs four times: `-k prefill` and `-k step` tell the phases apart."""
