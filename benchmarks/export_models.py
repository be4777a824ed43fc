"""Export the real models that real.py compares, and store a twin of each.

    python benchmarks/export_models.py --folder exported             all of them, some minutes
    python benchmarks/export_models.py --folder exported --only vit_6    one of them

It needs packages that the project does not depend on. Use an environment of its own:

    python -m venv exporting
    exporting/bin/pip install torch transformers onnx onnxscript onnxruntime -e .
    exporting/bin/python benchmarks/export_models.py --folder exported

Every model is made from a configuration with random weights, so nothing is downloaded. torch writes
`<folder>/<name>/model.onnx` with its weights in a file beside it. A copy with other weights, as
training makes it, is in `<folder>/<name>/retrained`. The twin of the first is stored in
`benchmarks/real_models/<name>.onnx`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor, nn

from pytest_modelperf.graph.model_file import open_model
from pytest_modelperf.graph.twin import make_twin, twin_bytes

TWINS = Path(__file__).with_name("real_models")
SEED, RETRAINED_SEED = 1, 2
# How many inputs the static quantizer sees.
CALIBRATION_INPUTS = 4


@dataclass(frozen=True)
class Source:
    """A network to export: how it is made, and one input of each name."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], Mapping[str, Tensor]]
    # Whether the batch size stays a symbol.
    has_open_batch: bool = False


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the models go")
    parser.add_argument("--only", nargs="+", choices=tuple(MODELS), metavar="NAME")
    options = parser.parse_args()
    for name in options.only or MODELS:
        place = options.folder / name
        for folder, seed in ((place, SEED), (place / "retrained", RETRAINED_SEED)):
            folder.mkdir(parents=True, exist_ok=True)
            MODELS[name](folder / "model.onnx", seed)
        TWINS.mkdir(exist_ok=True)
        data = twin_bytes(make_twin(open_model(place / "model.onnx")))
        (TWINS / f"{name}.onnx").write_bytes(data)
        print(f"{name}: a twin of {len(data) / 1e3:.0f} kB")
    return 0


# -- how a model is written


def export(source: Source, path: Path, seed: int) -> None:
    """Writes a network as torch does by default, with its weights in a file beside it."""
    torch.manual_seed(seed)
    model = source.make().eval()
    _season(model)
    inputs = dict(source.inputs())
    shapes = None
    if source.has_open_batch:
        shapes = {name: {0: torch.export.Dim("batch")} for name in inputs}
        inputs = {name: torch.cat([value, value]) for name, value in inputs.items()}
    with torch.no_grad():
        torch.onnx.export(
            model,
            (),
            str(path),
            kwargs=inputs,
            dynamo=True,
            dynamic_shapes=shapes,
            verbose=False,
        )


def export_static_int8(source: Source, path: Path, seed: int) -> None:
    """Writes a network with QuantizeLinear and DequantizeLinear around its layers."""
    with tempfile.TemporaryDirectory() as folder:
        whole, prepared = Path(folder, "whole.onnx"), Path(folder, "prepared.onnx")
        export(source, whole, seed)
        quant_pre_process(whole, prepared)
        quantize_static(
            prepared,
            path,
            Calibration(source.inputs()),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )


def export_dynamic_int8(source: Source, path: Path, seed: int) -> None:
    """Writes a network whose matrix products are quantized dynamically."""
    with tempfile.TemporaryDirectory() as folder:
        whole, prepared = Path(folder, "whole.onnx"), Path(folder, "prepared.onnx")
        export(source, whole, seed)
        quant_pre_process(whole, prepared)
        quantize_dynamic(prepared, path, weight_type=QuantType.QInt8)


class ImageLogits(nn.Module):
    """An image network of transformers that returns the tensor of logits alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Tensor:
        found: Tensor = self.model(pixel_values=image).logits
        return found


class TextLogits(nn.Module):
    """A text network of transformers that returns the tensor of logits alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        found: Tensor = self.model(input_ids=input_ids, attention_mask=attention_mask).logits
        return found


class Calibration(CalibrationDataReader):
    """Random inputs for the static quantizer."""

    def __init__(self, inputs: Mapping[str, Tensor]) -> None:
        random = np.random.RandomState(0)
        self.left: Iterator[dict[str, Any]] = iter(
            [
                {
                    name: random.standard_normal(value.shape).astype(np.float32)
                    for name, value in inputs.items()
                }
                for _ in range(CALIBRATION_INPUTS)
            ]
        )

    def get_next(self) -> dict[str, Any] | None:
        return next(self.left, None)


def _season(model: nn.Module) -> None:
    """Makes constant parameters and statistics random, because exporters fold constants."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.numel() > 1 and not parameter.std() > 0:
                parameter.add_(0.02 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(0.1 * torch.randn_like(buffer))
            if name.endswith("running_var"):
                buffer.copy_(0.5 + torch.rand_like(buffer))


# -- the networks


class InvertedResidual(nn.Module):
    """A block of MobileNetV2: wider, depthwise, narrower again."""

    def __init__(self, before: int, after: int, stride: int, factor: int) -> None:
        super().__init__()
        width = before * factor
        wider = [] if factor == 1 else [*_convolution(before, width, 1)]
        self.layers = nn.Sequential(
            *wider,
            *_convolution(width, width, 3, stride, groups=width),
            nn.Conv2d(width, after, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.is_residual = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layers(x)
        return x + made if self.is_residual else made


class MobileNetV2(nn.Module):
    """https://arxiv.org/abs/1801.04381, table 2: factor, channels, blocks and first stride."""

    STAGES = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
        (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [*_convolution(3, 32, 3, 2)]
        channels = 32
        for factor, width, blocks, stride in self.STAGES:
            for index in range(blocks):
                layers.append(InvertedResidual(channels, width, stride if not index else 1, factor))
                channels = width
        self.features = nn.Sequential(*layers, *_convolution(channels, 1280, 1))
        self.classifier = nn.Linear(1280, 1000)

    def forward(self, image: Tensor) -> Tensor:
        found: Tensor = self.classifier(self.features(image).mean((2, 3)))
        return found


class UNet(nn.Module):
    """A small https://arxiv.org/abs/1505.04597: down by pooling, up by transposed convolutions."""

    WIDTHS = (16, 32, 64, 128)

    def __init__(self) -> None:
        super().__init__()
        widths = self.WIDTHS
        self.down = nn.ModuleList(
            nn.Sequential(*_convolution(before, after, 3), *_convolution(after, after, 3))
            for before, after in zip((3, *widths), widths, strict=False)
        )
        pairs = tuple(zip(widths[1:], widths, strict=False))[::-1]
        self.rise = nn.ModuleList(
            nn.ConvTranspose2d(below, above, 2, stride=2) for below, above in pairs
        )
        self.up = nn.ModuleList(
            nn.Sequential(*_convolution(2 * above, above, 3), *_convolution(above, above, 3))
            for _, above in pairs
        )
        self.head = nn.Conv2d(widths[0], 4, 1)

    def forward(self, image: Tensor) -> Tensor:
        kept: list[Tensor] = []
        x = image
        for index, block in enumerate(self.down):
            x = block(x if not index else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for rise, block, beside in zip(self.rise, self.up, kept[-2::-1], strict=True):
            x = block(torch.cat([rise(x), beside], dim=1))
        found: Tensor = self.head(x)
        return found


class Recurrent(nn.Module):
    """Two layers of LSTM over a sequence of tokens, and a classifier of its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(8000, 128)
        self.lstm = nn.LSTM(128, 256, num_layers=2, batch_first=True)
        self.classifier = nn.Linear(256, 100)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        found: Tensor = self.classifier(states[:, -1])
        return found


def _convolution(
    before: int, after: int, size: int, stride: int = 1, groups: int = 1
) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(before, after, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU6(),
    )


def _resnet50() -> nn.Module:
    return ImageLogits(
        transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=1000))
    )


def _convnext_t() -> nn.Module:
    config = transformers.ConvNextConfig(num_labels=1000)
    return ImageLogits(transformers.ConvNextForImageClassification(config))


def _vit() -> nn.Module:
    config = transformers.ViTConfig(num_hidden_layers=6, num_labels=1000)
    return ImageLogits(transformers.ViTForImageClassification(config))


def _bert() -> nn.Module:
    config = transformers.BertConfig(num_hidden_layers=4, num_labels=2)
    return TextLogits(transformers.BertForSequenceClassification(config))


def _gpt2() -> nn.Module:
    config = transformers.GPT2Config(n_layer=4, vocab_size=16_000, use_cache=False)
    return TextLogits(transformers.GPT2LMHeadModel(config))


def _llama() -> nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=8_000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        use_cache=False,
    )
    return TextLogits(transformers.LlamaForCausalLM(config))


def _image(name: str, size: int = 224) -> Callable[[], Mapping[str, Tensor]]:
    return lambda: {name: torch.randn(1, 3, size, size)}


def _tokens(length: int, vocabulary: int, *names: str) -> Callable[[], Mapping[str, Tensor]]:
    def make() -> Mapping[str, Tensor]:
        found = dict.fromkeys(names, torch.ones(1, length, dtype=torch.int64))
        return {**found, names[0]: torch.randint(vocabulary, (1, length))}

    return make


_MOBILENET = Source(MobileNetV2, _image("image"), has_open_batch=True)
_BERT = Source(_bert, _tokens(64, 30_000, "input_ids", "attention_mask"))

MODELS: Mapping[str, Callable[[Path, int], None]] = {
    "mobilenet_v2": partial(export, _MOBILENET),
    "resnet50": partial(export, Source(_resnet50, _image("image"), has_open_batch=True)),
    "convnext_t": partial(export, Source(_convnext_t, _image("image"))),
    "vit_6": partial(export, Source(_vit, _image("image"))),
    "bert_4": partial(export, _BERT),
    "gpt2_4": partial(export, Source(_gpt2, _tokens(32, 16_000, "input_ids"))),
    "llama_4": partial(export, Source(_llama, _tokens(64, 8_000, "input_ids"))),
    "lstm": partial(export, Source(Recurrent, _tokens(64, 8_000, "tokens"))),
    "unet": partial(export, Source(UNet, _image("image", 128), has_open_batch=True)),
    "mobilenet_v2_qdq": partial(export_static_int8, Source(MobileNetV2, _image("image"))),
    "bert_4_int8": partial(export_dynamic_int8, _BERT),
}


if __name__ == "__main__":
    sys.exit(main())
