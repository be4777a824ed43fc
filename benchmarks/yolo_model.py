"""A detector like YOLOv8n: a backbone of split blocks, a neck that joins three scales, three heads.

It represents models with parallel branches, of which real_models has none. The weights are drawn
and scaled so that the activations keep their size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from draft import Draft
from onnx import ModelProto

SIDE = 320
# Channels of the backbone at each halving of the image, and the inner blocks of its last four.
_WIDTHS = (16, 32, 64, 128, 256)
_DEPTHS = (1, 2, 2, 1)
_CLASSES = 80
# Each side of a box is a distribution over so many distances.
_DISTANCES = 16
_STRIDES = (8, 16, 32)


def yolo_model(seed: int = 0) -> ModelProto:
    """The detector with weights drawn by a seed: 1x3x320x320 to boxes and scores of 2,100 cells."""
    draft = _Yolo(seed)
    small, middle, large = _backbone(draft, "x")
    middle_up = draft.split_block(draft.joined(draft.double(large), middle), 384, 128)
    small_up = draft.split_block(draft.joined(draft.double(middle_up), small), 192, 64)
    down = draft.convolve(small_up, 64, 64, 3, 2)
    middle_down = draft.split_block(draft.joined(down, middle_up), 192, 128)
    down = draft.convolve(middle_down, 128, 128, 3, 2)
    large_down = draft.split_block(draft.joined(down, large), 384, 256)
    scales = zip((small_up, middle_down, large_down), (64, 128, 256), _STRIDES, strict=True)
    cells = [_head(draft, *scale) for scale in scales]
    found = _decoded(draft, draft.add("Concat", *cells, axis=2))
    return draft.model(found, [1, 3, SIDE, SIDE], [1, 4 + _CLASSES, _cells()], opset=20)


class _Yolo(Draft):
    def floats(self, values: Any) -> str:  # noqa: ANN401  # what numpy takes
        return self.store(np.array(values, np.float32))

    def joined(self, *tensors: str) -> str:
        return self.add("Concat", *tensors, axis=1)

    def plain_convolution(self, x: str, before: int, after: int, size: int, stride: int = 1) -> str:
        """A convolution with a bias, and no activation."""
        shape, width = (after, before, size, size), (2.0 / (before * size * size)) ** 0.5
        kernel = self.floats(self.random.normal(0.0, width, shape))
        bias = self.floats(self.random.normal(0.0, 0.1, after))
        return self.add(
            "Conv", x, kernel, bias,
            kernel_shape=[size, size], strides=[stride, stride], pads=[size // 2] * 4,
        )  # fmt: skip

    def convolve(self, x: str, before: int, after: int, size: int, stride: int = 1) -> str:
        """A convolution and a SiLU."""
        made = self.plain_convolution(x, before, after, size, stride)
        return self.add("Mul", made, self.add("Sigmoid", made))

    def split_block(
        self, x: str, before: int, after: int, depth: int = 1, *, is_residual: bool = False
    ) -> str:
        """Half of the channels go through small blocks; all that was on the way is joined."""
        half = after // 2
        wide = self.convolve(x, before, after, 1)
        sizes = self.numbers(half, half)
        branches = self.add_all("Split", (wide, sizes), 2, axis=1)
        for _ in range(depth):
            made = self.convolve(self.convolve(branches[-1], half, half, 3), half, half, 3)
            branches.append(self.add("Add", branches[-1], made) if is_residual else made)
        return self.convolve(self.joined(*branches), half * len(branches), after, 1)

    def double(self, x: str) -> str:
        """A tensor with twice the height and width."""
        factors = self.floats([1, 1, 2, 2])
        return self.add(
            "Resize", x, "", factors,
            mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor",
        )  # fmt: skip


def _backbone(draft: _Yolo, image: str) -> tuple[str, ...]:
    """The tensors of three scales; the last one has gone through a pyramid of poolings."""
    x = draft.convolve(image, 3, _WIDTHS[0], 3, 2)
    scales = []
    for before, after, depth in zip(_WIDTHS, _WIDTHS[1:], _DEPTHS, strict=False):
        x = draft.convolve(x, before, after, 3, 2)
        x = draft.split_block(x, after, after, depth, is_residual=True)
        scales.append(x)
    width = _WIDTHS[-1]
    pooled = [draft.convolve(x, width, width // 2, 1)]
    for _ in range(3):
        pooled.append(
            draft.add("MaxPool", pooled[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1])
        )
    return (*scales[1:3], draft.convolve(draft.joined(*pooled), 2 * width, width, 1))


def _head(draft: _Yolo, x: str, width: int, stride: int) -> str:
    """Boxes and scores of one scale, a column for each cell."""
    branches = []
    for inner, outputs in ((64, 4 * _DISTANCES), (_CLASSES, _CLASSES)):
        made = draft.convolve(draft.convolve(x, width, inner, 3), inner, inner, 3)
        branches.append(draft.plain_convolution(made, inner, outputs, 1))
    side = SIDE // stride
    shape = draft.numbers(1, 4 * _DISTANCES + _CLASSES, side * side)
    return draft.add("Reshape", draft.joined(*branches), shape)


def _decoded(draft: _Yolo, cells: str) -> str:
    """The mean distance of each side of a box, and a score for each class."""
    sizes = draft.numbers(4 * _DISTANCES, _CLASSES)
    boxes, classes = draft.add_all("Split", (cells, sizes), 2, axis=1)
    shape = draft.numbers(1, 4, _DISTANCES, _cells())
    sides = draft.add("Transpose", draft.add("Reshape", boxes, shape), perm=[0, 3, 1, 2])
    chances = draft.add("Softmax", sides, axis=-1)
    steps = draft.floats(np.arange(_DISTANCES))
    distances = draft.add("Transpose", draft.add("MatMul", chances, steps), perm=[0, 2, 1])
    return draft.joined(distances, draft.add("Sigmoid", classes))


def _cells() -> int:
    return sum((SIDE // stride) ** 2 for stride in _STRIDES)
