#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on an include that runs against the layers.

    examples -> bindings -> runtime -> collectives -> fusion -> base        launcher -> base

Also: MPI headers only in files named for MPI, CUDA and NCCL headers only below a cuda/ folder, and quoted
includes are written from the root of the repository, so that the layer of a file can be read off them.
"""

import argparse
import pathlib
import re
import sys

# A layer is a folder; the longest one that matches a file is its layer. Each may include itself and:
LAYERS = {
    "base": [],
    "fusion": ["base"],
    "collectives": ["fusion", "base"],
    "runtime": ["collectives", "fusion", "base"],
    "bindings/c": ["public", "runtime", "collectives", "fusion", "base"],
    "bindings/cpp": ["public"],
    "bindings/trainer": ["public"],
    "launcher": ["base"],
    "examples": ["public", "bindings/trainer"],
}
# How the world outside includes Ronde. bindings/c and bindings/cpp own the headers behind it.
PUBLIC_PREFIX = "ronde/"
# Programs that are written as an outsider would write them see the C++ facade, and no other header of ours.
FACADE_ONLY = {"bindings/trainer", "examples"}
FACADE = "ronde/ronde.hpp"

SUFFIXES = {".h", ".hpp", ".cc", ".c", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
MPI_HEADER = re.compile(r"^(mpi|mpi-ext|mpio)\.h$")
GPU_HEADER = re.compile(r"^(cuda|cublas|nccl|nvml|cub/|thrust/|cooperative_groups)")


def layer_of(path):
    """The layer that a path relative to the root belongs to, or None."""
    matches = [layer for layer in LAYERS if path == layer or path.startswith(layer + "/")]
    return max(matches, key=len, default=None)


def problem_with(root, path, quoted, target):
    """What is wrong with one include, or None."""
    layer = layer_of(path)
    name = pathlib.PurePosixPath(path).name
    if MPI_HEADER.match(target) and "mpi" not in name and "/mpi/" not in path:
        return "MPI headers belong in files named for MPI (mpi_*) or in a folder mpi/"
    if GPU_HEADER.match(target) and "/cuda/" not in "/" + path:
        return "CUDA and NCCL headers belong below a cuda/ folder"
    if target.startswith(PUBLIC_PREFIX):
        if "public" not in LAYERS[layer]:
            return f"{layer} may not include the public API"
        if layer in FACADE_ONLY and target != FACADE:
            return f"{layer} is written on the facade alone: include <{FACADE}>"
        return None
    target_layer = layer_of(target)
    if target_layer is not None and target_layer != target:
        if target_layer == layer or target_layer in LAYERS[layer]:
            return None
        return f"{layer} may not include {target_layer}"
    if quoted and not (root / target).exists():
        return "quoted includes are written from the root of the repository"
    if quoted:
        return f"{layer} may not include files outside the layers"
    return None


def check(root):
    """All problems below root, as lines, and the number of files read."""
    problems = []
    files = 0
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*")):
            relative = path.relative_to(root).as_posix()
            if path.suffix not in SUFFIXES or layer_of(relative) != layer:
                continue
            files += 1
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                problem = problem_with(root, relative, match[1] == '"', match[2])
                if problem:
                    problems.append(f"{relative}:{number}: #include {match[2]}: {problem}")
    return problems, files


def main():
    parser = argparse.ArgumentParser(description="Fails on an include that runs against the layers.")
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    root = parser.parse_args().root.resolve()
    problems, files = check(root)
    for problem in problems:
        print(problem)
    if files == 0:
        print(f"{root}: no source file found: is this the root of the repository?")
        return 1
    print(f"{files} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
