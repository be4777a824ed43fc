"""The nine models that the onnx package ships, with the figures that must be met to the digit."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import onnx

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


class Expected(NamedTuple):
    """MACs at batch 1, and parameters.

    The MACs are those of the papers and of torchvision where it has the model; parameters
    include running statistics, which these files keep as weights.
    """

    macs: int
    params: int


LIGHT_MODELS = {
    "bvlc_alexnet": Expected(654_560_384, 60_965_224),
    "densenet121": Expected(2_834_161_664, 8_146_152),
    "inception_v1": Expected(1_431_556_352, 6_998_552),
    "inception_v2": Expected(2_018_851_840, 11_234_792),
    "resnet50": Expected(4_089_184_256, 25_610_152),
    "shufflenet": Expected(124_664_528, 1_420_152),
    "squeezenet": Expected(349_151_936, 1_235_496),
    "vgg19": Expected(19_632_062_464, 143_667_240),
    "zfnet512": Expected(1_481_727_008, 87_250_536),
}


def light_model(name: str) -> Path:
    return FOLDER / f"light_{name}.onnx"
