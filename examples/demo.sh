#!/bin/sh
# A failing build from start to end, in a folder of its own that is gone afterwards. No network.
set -eu

examples=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cp "$examples/make_models.py" "$folder"
cd "$folder"

say() {
    printf '\n# %s\n' "$@"
}

show() {
    printf '$ %s\n' "$*"
    "$@"
}

say "1. A small model: four convolutions, each with a Relu. What does it cost?"
show python make_models.py models
show modelperf profile models/classifier.onnx --top 5 --max-seconds 3

say "2. Record that as its baseline: files to commit beside the code."
show pytest --modelperf --modelperf-update-baseline models/classifier.onnx
find baselines -type f

say "3. The same model again passes: it is unchanged."
show pytest --modelperf models/classifier.onnx

say "4. Somebody exports it with another activation: HardSwish in place of Relu."
show python make_models.py models --act HardSwish

say "5. The next build fails, and says why. Strict: it passes only what is shown."
status=0
show pytest --modelperf --modelperf-strict models/classifier.onnx || status=$?
if [ "$status" -ne 1 ]; then
    echo "error: pytest ended with $status where it should have failed with 1" >&2
    exit 1
fi
say "That was the demo. pytest ended with 1, which is what fails a build in CI."
