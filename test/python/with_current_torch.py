#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of ronde.torch with the current PyTorch, in a virtual environment of their own.

usage: with_current_torch.py FOLDER

The environment in FOLDER is made once; pip fetches several gigabytes for it. A new environment has the current version.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import venv

PACKAGES = ("torch", "numpy", "expecttest", "lightning", "accelerate")
HERE = pathlib.Path(__file__).resolve().parent
# A script that does not know of Ronde finds the back end by the package's entry point.
WITHOUT_IMPORT = """
import torch.distributed as dist
dist.init_process_group("ronde", store=dist.HashStore(), rank=0, world_size=1)
assert dist.get_backend() == "ronde", dist.get_backend()
"""


def run(*command, **variables):
    print("+", *command, flush=True)
    subprocess.run([str(word) for word in command], check=True, env={**os.environ, **variables})


def try_wheel(python, folder):
    """O10: installs the package beside it, without the network, has it found by its name, and takes it away again."""
    maker = HERE.parents[1] / "bindings" / "python" / "make_wheel.py"
    shutil.rmtree(folder / "wheel", ignore_errors=True)
    run(python, "-B", maker, pathlib.Path(os.environ["LIBRONDE"]).parent, folder / "wheel")
    pip = (python, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "--quiet", "--no-index", "--force-reinstall", "--no-deps", *(folder / "wheel").glob("*.whl"))
    try:
        stranger = {key: value for key, value in os.environ.items() if key not in ("LIBRONDE", "PYTHONPATH")}
        subprocess.run([str(python), "-c", WITHOUT_IMPORT], check=True, cwd=folder, env=stranger)
    finally:
        run(*pip, "uninstall", "--quiet", "--yes", "ronde")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    python, whole = folder / "bin" / "python", folder / "whole"
    if not whole.exists():
        venv.create(folder, clear=True, with_pip=True)
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES)
        whole.touch()
    run(python, "-c", "import torch; print('PyTorch', torch.__version__)")
    try_wheel(python, folder)
    for ranks in (2, 3):
        run(python, HERE / "torch_group.py", "--ranks", ranks)
    for backend in ("ronde", "gloo"):
        for ranks in (2, 3):
            run(python, HERE / "torch_backend.py", "--backend", backend, "--ranks", ranks)
        run(python, HERE / "torch_programs.py", "--backend", backend)
        run(python, HERE / "torch_programs.py", "--backend", backend, "--ranks", 4, "Meshes")
        run(python, HERE / "torch_ends.py", "--backend", backend)
    run(python, "-m", "torch.distributed.run", "--nproc_per_node", 2, HERE / "torch_group.py")
    run(python, HERE / "torch_ranks.py", RONDE_MPI="off")
    run(python, HERE / "torch_suite.py", "--beside", "gloo", "--ranks", 2)


if __name__ == "__main__":
    main()
