#!/usr/bin/env bash
# tests/gpu/check.sh - all about a GPU in one go: is it right, then how fast; what `make gpu-check` does.
#
#   tests/gpu/check.sh [BUILD] [ARGUMENT]...
#
# Runs tests/gpu/run.sh on BUILD (build-cuda) and, where all passes, bench/gpu.sh with its program and the
# arguments: models, --only and others. Rows are anew in BUILD/gpu-check; where there is no PyTorch they are
# Yoke's alone.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build-cuda}

if [ ! -e /dev/nvidiactl ]; then
    echo "yoke: gpu-check: there is no GPU: NVIDIA's driver has made no /dev/nvidiactl" >&2
    exit 1
fi
tests/gpu/run.sh "$build"
rm -rf "$build/gpu-check"
only=()
python3 -c 'import torch' 2>/dev/null || only=(--only yoke)
bench/gpu.sh --yoke "$build/yoke" --out "$build/gpu-check" "${only[@]}" "${@:2}"
