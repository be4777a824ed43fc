#!/bin/sh
# Profiles a model that ships inside the onnx package, so that nothing has to be downloaded.
set -eu

show() {
    printf '\n$ %s\n' "$*"
    "$@"
}

cd "$(python -c 'import onnx; print(onnx.__path__[0])')/backend/test/data/light"
show modelperf profile light_squeezenet.onnx --static --top 5
show modelperf profile light_squeezenet.onnx --max-seconds 5 --top 10
