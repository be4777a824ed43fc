"""The tables of a comparison."""

from pytest_modelperf.comparing.tables.cases import (
    TONES,
    CaseView,
    cases_rows,
    cases_table,
    describe_views,
    worst_view,
)
from pytest_modelperf.comparing.tables.cells import INTERVAL, without_column
from pytest_modelperf.comparing.tables.figures import (
    is_measured,
    metric_table,
    shown_metrics,
)
from pytest_modelperf.comparing.tables.graphs import layer_type_change_table, shows_graphs
from pytest_modelperf.comparing.tables.outputs import (
    OUTPUT_COLUMNS,
    has_output_figures,
    output_table,
)
from pytest_modelperf.comparing.tables.stages import stage_table
from pytest_modelperf.comparing.tables.times import (
    format_layer_ms,
    has_times,
    layer_change_name,
    layer_change_type,
    layer_difference_table,
    layers_that_explain,
    main_type_difference_table,
    type_difference_table,
)

__all__ = [
    "INTERVAL",
    "OUTPUT_COLUMNS",
    "TONES",
    "CaseView",
    "cases_rows",
    "cases_table",
    "describe_views",
    "format_layer_ms",
    "has_output_figures",
    "has_times",
    "is_measured",
    "layer_change_name",
    "layer_change_type",
    "layer_difference_table",
    "layer_type_change_table",
    "layers_that_explain",
    "main_type_difference_table",
    "metric_table",
    "output_table",
    "shown_metrics",
    "shows_graphs",
    "stage_table",
    "type_difference_table",
    "without_column",
    "worst_view",
]
