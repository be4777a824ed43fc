"""The tables of a comparison."""

from pytest_modelperf.comparing.tables.cells import INTERVAL, without_column
from pytest_modelperf.comparing.tables.figures import (
    case_table,
    is_measured,
    metric_tables,
)
from pytest_modelperf.comparing.tables.graphs import layer_type_change_table, shows_graphs
from pytest_modelperf.comparing.tables.outputs import (
    OUTPUT_COLUMNS,
    has_output_figures,
    output_table,
)
from pytest_modelperf.comparing.tables.times import (
    explains_layers,
    format_layer_ms,
    has_times,
    layer_change_name,
    layer_change_type,
    layer_time_tables,
    layer_type_time_tables,
)

__all__ = [
    "INTERVAL",
    "OUTPUT_COLUMNS",
    "case_table",
    "explains_layers",
    "format_layer_ms",
    "has_output_figures",
    "has_times",
    "is_measured",
    "layer_change_name",
    "layer_change_type",
    "layer_time_tables",
    "layer_type_change_table",
    "layer_type_time_tables",
    "metric_tables",
    "output_table",
    "shows_graphs",
    "without_column",
]
