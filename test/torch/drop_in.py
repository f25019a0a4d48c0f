#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The trainers of examples/drop_in: what their page says, and what they learn.

usage: drop_in.py page FOLDER                    compares README.md with the files
       drop_in.py mnist FOLDER CMAKE CXX PREFIX MPIEXEC
                                                 builds with what is installed, and trains on one rank and on two
       drop_in.py c FOLDER CC PREFIX MPIEXEC     the trainer in C: one rank and several learn the same
       drop_in.py dlib FOLDER CXX PREFIX MPIEXEC the trainer on dlib: likewise
       drop_in.py lightgbm FOLDER CXX PREFIX MPIEXEC LIBRARY
                                                 the model is that of LightGBM's own sockets; LIBRARY is
                                                 lib_lightgbm.so, or empty: pip installs it here
"""
import difflib
import gzip
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
# Lines that may be new or changed.
MOST_LINES = {"mnist.cc": 4, "mlp.c": 12, "spirals.cc": 12, "trees.cc": 12}


def page(folder):
    folder = pathlib.Path(folder)
    text = (folder / "README.md").read_text(encoding="utf-8")
    for name, most in MOST_LINES.items():
        paths = (folder / name, folder / name.replace(".", "_ronde."))
        before, after = (path.read_text(encoding="utf-8").splitlines() for path in paths)
        lines = [line for line in difflib.unified_diff(before, after, n=0, lineterm="")
                 if not line.startswith(("+++", "---", "@@"))]
        shown = re.search(rf"^## [^\n]*{re.escape(name)}\n.*?^```diff\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        assert shown is not None, f"README.md has no diff of {name}"
        assert shown[1].splitlines() == lines, "README.md shows other lines:\n" + "\n".join(lines)
        changed = sum(line.startswith("+") for line in lines)
        assert changed <= most, f"{name}: {changed} lines, and {most} are the limit"
        print(f"{name}: {changed} lines")


def run(*command):
    done = late.run(command, 500, stderr=subprocess.STDOUT)
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


def build(compiler, source, program, *words):
    run(compiler, "-O1", source, "-o", program, *words)
    return program


def with_ronde(prefix):
    """The words that compile and link a program with what is installed."""
    (library,) = pathlib.Path(prefix).rglob("libronde.so")
    return [f"-I{prefix}/include", f"-L{library.parent}", "-lronde", f"-Wl,-rpath,{library.parent}"]


def ranks(mpiexec, number, *command):
    return run(mpiexec, "--bind-to", "none", "--oversubscribe", "-np", str(number), *command)


def losses(output):
    return [float(found) for found in re.findall(r"loss[ =]([0-9.]+)", output)]


def same_losses(folder, compiler, prefix, mpiexec, name, most, *words):
    """One rank of the program before, and one to four of that after, learn the same."""
    folder = pathlib.Path(folder)
    with tempfile.TemporaryDirectory() as work:
        plain = build(compiler, folder / name, f"{work}/plain", *words)
        averaged = build(compiler, folder / name.replace(".", "_ronde."), f"{work}/averaged", *with_ronde(prefix), *words)
        expected = losses(run(plain))
        assert expected and expected[-1] < most, expected
        for number in (1, 2, 4):
            found = losses(ranks(mpiexec, number, averaged))
            assert len(found) == len(expected), (number, found)
            assert all(abs(a - b) < 1e-4 for a, b in zip(found, expected)), (number, found, expected)
    print(f"{name}: 1, 2 and 4 ranks end with {expected[-1]}, as one process")


def c(folder, compiler, prefix, mpiexec):
    same_losses(folder, compiler, prefix, mpiexec, "mlp.c", 0.1, "-std=c11", "-Wall", "-Wextra", "-Werror", "-lm")


def dlib(folder, compiler, prefix, mpiexec):
    same_losses(folder, compiler, prefix, mpiexec, "spirals.cc", 0.1, "-std=c++20", "-ldlib", "-lblas", "-lpthread")


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [str(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def lightgbm(folder, compiler, prefix, mpiexec, library=""):
    folder = pathlib.Path(folder)
    with tempfile.TemporaryDirectory() as work:
        if not library:
            run(sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--only-binary=:all:",
                "-d", work, "lightgbm")
            (wheel,) = pathlib.Path(work).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                library = archive.extract("lightgbm/lib/lib_lightgbm.so", work)
        words = ["-std=c++20", f"-I{folder}", library, f"-Wl,-rpath,{pathlib.Path(library).parent}"]
        plain = build(compiler, folder / "trees.cc", f"{work}/plain", *words)
        over = build(compiler, folder / "trees_ronde.cc", f"{work}/over", *with_ronde(prefix), *words)
        ports = free_ports(2)
        jobs = [subprocess.Popen([plain, f"{work}/sockets", str(rank), *ports]) for rank in range(2)]
        for job in jobs:
            late.finish(job, 200)
        assert [job.returncode for job in jobs] == [0, 0], "LightGBM over its own sockets failed"
        ranks(mpiexec, 2, over, f"{work}/ronde")
        models = [pathlib.Path(f"{work}/{kind}.{rank}").read_bytes() for kind in ("sockets", "ronde") for rank in (0, 1)]
        assert models[0].count(b"Tree=") == 20 and all(model == models[0] for model in models), "the models differ"
    print(f"trees.cc: {len(models[0])} bytes of model, the same over sockets and over Ronde")


def main():
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    {"page": page, "mnist": mnist, "c": c, "dlib": dlib, "lightgbm": lightgbm}[sys.argv[1]](*sys.argv[2:])


if __name__ == "__main__":
    late.end(main)
