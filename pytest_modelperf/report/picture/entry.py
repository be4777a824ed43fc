"""A picture as the data that the script of a page draws, column by column to be short."""

from __future__ import annotations

from pytest_modelperf.report.picture.folding import fold
from pytest_modelperf.report.picture.layout import lay_out
from pytest_modelperf.report.picture.records import BoxState, Picture

# Times are rounded to a nanosecond.
_DECIMALS = 6


def picture_entry(picture: Picture) -> dict[str, object]:
    """The picture for a page: a list for each fact, with the boxes in the same order in all."""
    if not picture.boxes:
        return {"reason": picture.reason}
    boxes = picture.boxes
    layout = lay_out([box.inputs for box in boxes])
    types = list(dict.fromkeys(box.op_type for box in boxes))
    at = {op: index for index, op in enumerate(types)}
    states = list(BoxState)
    return {
        "unit": picture.unit,
        "types": types,
        "type": [at[box.op_type] for box in boxes],
        "layer": [box.row for box in boxes],
        "inputs": [box.inputs for box in boxes],
        # The lines of one side between boxes of both, which are few.
        "only": [
            {at: box.only_before for at, box in enumerate(boxes) if box.only_before},
            {at: box.only_after for at, box in enumerate(boxes) if box.only_after},
        ],
        "values": [
            [_rounded(box.values[side]) for box in boxes] for side in range(len(picture.sides))
        ],
        "state": [states.index(box.state) for box in boxes],
        "is_layout": [int(box.is_layout) for box in boxes],
        "is_clear": [int(box.is_clear) for box in boxes],
        "part": [box.part for box in boxes],
        "rows": layout.rows,
        "lane": layout.lanes,
        "way": layout.ways,
        "folds": [[rows[0], rows[-1]] for rows in fold(picture, layout)],
        "parts": [
            {"text": part.text, "change_ms": part.change_ms, "interval_ms": part.interval_ms}
            for part in picture.parts
        ],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DECIMALS)
