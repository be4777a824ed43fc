# Markers: a test runs once for each case of its model, and its budgets hold for all of them.
# Make the models once:  python ../make_models.py models
# Then type:             pytest --modelperf
"""What our two models may cost."""

import pytest


@pytest.mark.perf_case("models/classifier.onnx", batch_size=[1, 8])
@pytest.mark.perf_budget(latency_ms=100, p99_ms=200, params="40k", peak_memory_mb=500)
def test_classifier():
    """The markers say it all: the body may be empty."""


@pytest.mark.perf_case("models/encoder.onnx", dims={"seq": 64})
@pytest.mark.perf_budget(items_per_second=20, load_ms=1000)
class TestEncoder:
    """Markers of a class, or of a module as `pytestmark`, hold for every test in it."""

    def test_cost(self):
        pass

    @pytest.mark.perf_case(batch_size=4, cores=1)
    def test_cost_of_a_batch(self, modelperf):
        # What the markers had checked, for what no budget says.
        assert modelperf.profile.layer_types["MatMul"].count == 4
