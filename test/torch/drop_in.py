#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The trainers of examples/drop_in: what their page says, and what they learn.

usage: drop_in.py page FOLDER                    compares README.md with the files
       drop_in.py mnist FOLDER CMAKE CXX PREFIX MPIEXEC
                                                 builds with what is installed, and trains on one rank and on two
"""
import difflib
import gzip
import os
import pathlib
import re
import subprocess
import sys
import tempfile

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
MOST_LINES = {"mnist": 4}  # that may be new or changed


def page(folder):
    folder = pathlib.Path(folder)
    text = (folder / "README.md").read_text(encoding="utf-8")
    for name, most in MOST_LINES.items():
        before, after = ((folder / f"{name}{end}.cc").read_text(encoding="utf-8").splitlines() for end in ("", "_ronde"))
        lines = [line for line in difflib.unified_diff(before, after, n=0, lineterm="")
                 if not line.startswith(("+++", "---", "@@"))]
        shown = re.search(rf"^## [^\n]*{name}\.cc\n.*?^```diff\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        assert shown is not None, f"README.md has no diff of {name}.cc"
        assert shown[1].splitlines() == lines, "README.md shows other lines:\n" + "\n".join(lines)
        changed = sum(line.startswith("+") for line in lines)
        assert changed <= most, f"{name}: {changed} lines, and {most} are the limit"
        print(f"{name}: {changed} lines")


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def accuracies(output):
    return [float(found) for found in re.findall(r"accuracy=([0-9.]+)", output)]


PROJECT = """cmake_minimum_required(VERSION 3.25)
project(stranger LANGUAGES CXX)
find_package(ronde REQUIRED COMPONENTS torch)
add_executable(mnist {folder}/mnist.cc)
target_link_libraries(mnist PRIVATE ${{TORCH_LIBRARIES}})
target_include_directories(mnist SYSTEM PRIVATE ${{TORCH_INCLUDE_DIRS}})
add_executable(mnist_ronde {folder}/mnist_ronde.cc)
target_link_libraries(mnist_ronde PRIVATE ronde::torch)
"""


def mnist(folder, cmake, compiler, prefix, mpiexec):
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        (work / "CMakeLists.txt").write_text(PROJECT.format(folder=folder), encoding="utf-8")
        run(cmake, "-S", work, "-B", work / "build", f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_PREFIX_PATH={prefix}",
            "-DCMAKE_CXX_STANDARD=17")
        run(cmake, "--build", work / "build", "--parallel", "2")
        data = work / "data"
        data.mkdir()
        for path in DATA.glob("*.gz"):
            (data / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        alone = accuracies(run(work / "build/mnist", data, "1"))
        two = accuracies(run(mpiexec, "--bind-to", "none", "-np", "2", work / "build/mnist_ronde", data, "1"))
    print("one process:", alone, "two ranks:", two)
    # Two ranks take half as many steps of twice the batch: they learn less in the first epoch.
    assert alone[0] > 0.65 and len(two) == 2 and two[0] > 0.6, (alone, two)
    assert two[0] == two[1], "the ranks' models differ"


def main():
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    {"page": page, "mnist": mnist}[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    main()
