"""A picture as the data that a page's script draws, stored column by column to be short."""

from __future__ import annotations

from pytest_modelperf.report.picture.layout import fold, lay_out
from pytest_modelperf.report.picture.records import Box, BoxState, Picture

# Times are rounded to a nanosecond.
_DECIMALS = 6


def picture_entry(picture: Picture) -> dict[str, object]:
    """Return a list for each kind of fact, all with the boxes in the same order."""
    if not picture.boxes:
        return {"reason": picture.reason}
    boxes = picture.boxes
    layout = lay_out([box.inputs for box in boxes])
    types = list(dict.fromkeys(box.op_type for box in boxes))
    at = {op: index for index, op in enumerate(types)}
    states = list(BoxState)
    values = [[_rounded(box.values[side]) for box in boxes] for side in range(len(picture.sides))]
    figures = [_rounded(_figure(box)) for box in boxes]
    return {
        "unit": picture.unit,
        "types": types,
        "type": [at[box.op_type] for box in boxes],
        "layer": [box.row for box in boxes],
        "inputs": [box.inputs for box in boxes],
        # The lines that only one side has between boxes that both have, which are few.
        "only": [
            {at: box.only_before for at, box in enumerate(boxes) if box.only_before},
            {at: box.only_after for at, box in enumerate(boxes) if box.only_after},
        ],
        "values": values,
        "figure": figures,
        "most": max((abs(figure) for figure in figures if figure is not None), default=0.0),
        "total": max((sum(value or 0.0 for value in each) for each in values), default=0.0),
        "state": [states.index(box.state) for box in boxes],
        "is_layout": [int(box.is_layout) for box in boxes],
        # Kernels that are the same on both sides, and whose difference may be chance.
        "is_still": [
            int(box.state is BoxState.SAME and box.part is None and not box.is_clear)
            for box in boxes
        ],
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


def _figure(box: Box) -> float | None:
    """Return the value of a box, or its increase on the second side, or None if it is unknown."""
    before, after = (0.0, *box.values)[-2:]
    if box.state is BoxState.NEW:
        before = 0.0
    if box.state is BoxState.GONE:
        after = 0.0
    return None if before is None or after is None else after - before


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DECIMALS)
