#!/bin/sh
# Install Kleash and the given extras into .venv: sh tools/install.sh demo,dev
# On Linux, PyTorch's default build brings several GB of CUDA: without an NVIDIA GPU the CPU build is taken instead.
set -eu

python=.venv/bin/python
cpu_index=https://download.pytorch.org/whl/cpu
quiet=--quiet
if [ -t 1 ]; then quiet=; fi

install() {
    "$python" -m pip install $quiet --disable-pip-version-check --constraint constraints.txt "$@"
}

has_pinned_torch() {
    "$python" -m pip freeze --disable-pip-version-check | grep -q "^$(grep '^torch==' constraints.txt)"
}

reaches() {
    "$python" - "$1" 2>/dev/null <<'PYTHON'
import sys, urllib.request
urllib.request.urlopen(urllib.request.Request(sys.argv[1], method="HEAD"), timeout=5)
PYTHON
}

echo "Installing Kleash with [$1] into .venv. Besides PyTorch that downloads 100 to 250 MB."
if has_pinned_torch; then
    echo "PyTorch is there already."
elif [ "$(uname -s)" != Linux ]; then
    echo "PyTorch: about 100 MB."
    install torch
elif command -v nvidia-smi >/dev/null; then
    echo "PyTorch: there is an NVIDIA GPU, so the CUDA build, a download of several GB."
    install torch
elif reaches "$cpu_index/torch/"; then
    echo "PyTorch: no NVIDIA GPU here, so the CPU build from $cpu_index, about 200 MB."
    install --extra-index-url "$cpu_index" torch
else
    echo "PyTorch: no NVIDIA GPU here, but $cpu_index is out of reach. What pip finds elsewhere is taken:"
    echo "on PyPI that is the CUDA build, a download of several GB, which runs on the CPU as well."
    install torch
fi
install hatchling editables
install --no-build-isolation --editable ".[$1]"
