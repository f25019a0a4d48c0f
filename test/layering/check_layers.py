#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on an include that runs against the layers or the rooms, on a circle of files and on a crowded folder.

    examples -> bindings -> runtime -> collectives -> fusion -> base        launcher -> base

and programs alone -> base/flags.

A layer is a top-level folder (or one of bindings/); a room is a folder of a layer, with the list of the rooms
that it may include; nobody includes a plug-in's room. Also: MPI headers only in files or folders named for MPI,
UCX headers only below a ucx/ folder, UCX's only below a ucx/ folder, CUDA's and NCCL's only below a cuda/ folder, and quoted includes are
written from the root of the repository, so that the layer and the room of a file can be read off them.
"""

import argparse
import collections
import pathlib
import re
import sys

# A layer is a folder; the longest one that matches a file is its layer. Each may include itself and:
LAYERS = {
    "base/words": [],
    "base/flags": ["base/words"],
    "base": ["base/words"],
    "fusion": ["base"],
    "collectives": ["fusion", "base"],
    "runtime": ["collectives", "fusion", "base", "base/words"],
    "bindings/c": ["public", "runtime", "collectives", "fusion", "base"],
    "bindings/cpp": ["public"],
    "bindings/mpi": ["public"],
    "bindings/torch": ["public"],
    "bindings/trainer": ["public", "base/words", "base/flags"],
    "launcher": ["base", "base/words", "base/flags"],
    "examples": ["public", "bindings/trainer"],
    "examples/perf": ["public", "examples", "base/words", "base/flags"],
}

# The rooms of the layers that have any, from the ground floor up: a room may include itself, the layers below
# its own, and the rooms listed here. A file of such a layer that lies in none of its rooms is an error.
ROOMS = {
    "collectives/kernels": [],
    "collectives/board": ["collectives/kernels"],
    "collectives/plugin": [],
    "collectives/transport": ["collectives/plugin"],
    "collectives/transport/ucx": ["collectives/transport"],
    "collectives/transport/mpi": ["collectives/transport"],
    "collectives/messages": ["collectives/kernels", "collectives/transport"],
    "collectives/in_host": ["collectives/kernels", "collectives/board", "collectives/transport",
                            "collectives/messages"],
    "collectives/two_level": ["collectives/kernels", "collectives/transport", "collectives/messages",
                              "collectives/in_host"],
    "collectives/plane": ["collectives/kernels", "collectives/board", "collectives/transport",
                          "collectives/messages", "collectives/in_host", "collectives/two_level"],
    "collectives/device": ["collectives/plugin"],
    "collectives/cuda": ["collectives/device"],
    "runtime/drive": ["collectives/board"],
    "runtime/tensors": ["runtime/drive", "collectives/board", "collectives/device"],
    "runtime/links": ["runtime/tensors", "collectives/board"],
    "runtime/negotiate": ["runtime/tensors", "runtime/links", "collectives/board"],
    "runtime/timeline": ["collectives/board", "collectives/transport"],
    "runtime/member": ["runtime/drive", "runtime/tensors", "runtime/links", "runtime/negotiate", "runtime/timeline",
                       "collectives/board"],
    "runtime/messages": ["runtime/drive", "runtime/tensors", "runtime/negotiate", "runtime/member", "runtime/timeline",
                         "collectives/board"],
    "runtime/execute": ["runtime/drive", "collectives/transport", "collectives/plane", "collectives/device"],
    "runtime/start": ["runtime/links"],
    "runtime/meet": ["runtime/links", "runtime/start", "collectives/board", "collectives/transport"],
    "runtime/job": ["runtime/links", "runtime/start", "runtime/meet", "collectives/board", "collectives/transport"],
    "runtime/sets": ["runtime/drive", "runtime/tensors", "runtime/negotiate", "runtime/links", "runtime/member", "runtime/job",
                     "collectives/board", "collectives/transport", "collectives/plane"],
    "runtime/lines": ["runtime/drive", "runtime/tensors", "runtime/negotiate", "runtime/member", "collectives/kernels",
                      "collectives/board", "collectives/in_host"],
    "runtime/engine": ["runtime/sets", "runtime/lines", "runtime/drive", "runtime/tensors", "runtime/negotiate", "runtime/links", "runtime/member",
                       "runtime/execute", "runtime/timeline", "runtime/messages",
                       "runtime/job", "collectives/kernels", "collectives/board", "collectives/plugin",
                       "collectives/transport",
                       "collectives/plane", "collectives/device", "collectives/in_host"],
    "bindings/trainer/tensor": [],
    "bindings/trainer/nn": ["bindings/trainer/tensor"],
    "bindings/trainer/optim": ["bindings/trainer/tensor"],
    "bindings/trainer/data": ["bindings/trainer/tensor"],
    "bindings/trainer/fit": ["bindings/trainer/tensor", "bindings/trainer/nn", "bindings/trainer/optim",
                             "bindings/trainer/data"],
    "bindings/trainer/keep": ["bindings/trainer/tensor", "bindings/trainer/nn", "bindings/trainer/optim",
                              "bindings/trainer/fit", "bindings/trainer/fit/strategy"],
    "bindings/trainer/fit/strategy": ["bindings/trainer/tensor", "bindings/trainer/nn", "bindings/trainer/optim",
                                      "bindings/trainer/data", "bindings/trainer/fit"],
    "bindings/trainer/fit/program": ["bindings/trainer/tensor", "bindings/trainer/optim", "bindings/trainer/data",
                                     "bindings/trainer/fit", "bindings/trainer/keep",
                                     "bindings/trainer/fit/strategy"],
    "bindings/trainer/server": ["bindings/trainer/tensor", "bindings/trainer/optim", "bindings/trainer/fit",
                                "bindings/trainer/keep"],
    "bindings/trainer/server/strategy": ["bindings/trainer/tensor", "bindings/trainer/nn", "bindings/trainer/optim",
                                         "bindings/trainer/data", "bindings/trainer/fit",
                                         "bindings/trainer/fit/strategy", "bindings/trainer/fit/program",
                                         "bindings/trainer/server"],
    "bindings/trainer/include": ["bindings/trainer/tensor", "bindings/trainer/nn", "bindings/trainer/optim",
                                 "bindings/trainer/data", "bindings/trainer/fit", "bindings/trainer/fit/strategy",
                                 "bindings/trainer/fit/program", "bindings/trainer/keep", "bindings/trainer/server",
                                 "bindings/trainer/server/strategy"],
    "examples/perf/options": [],
    "examples/perf/contenders": ["examples/perf/options"],
    "examples/perf/measure": ["examples/perf/options", "examples/perf/contenders"],
    "examples/perf/report": ["examples/perf/options", "examples/perf/measure"],
}
LAYERS_WITH_ROOMS = ("collectives", "runtime", "bindings/trainer")

# How many source files a folder may hold, its sub-folders not counted.
MOST_FILES = 26

# How the world outside includes Ronde. bindings/c and bindings/cpp own the headers behind it.
PUBLIC_PREFIX = "ronde/"
# Programs that are written as an outsider would write them see the C++ facade, and no other header of ours.
FACADE_ONLY = {"bindings/trainer", "examples", "examples/perf"}
FACADE = "ronde/ronde.hpp"
TORCH = "ronde/torch.hpp"  # the facade of programs with LibTorch
C_ABI = "ronde/ronde.h"
# All of the training core, for its users.
TRAINER = "ronde/trainer.hpp"
# Parameter servers, where they were built.
PARAMETER_SERVER = "ronde/parameter_server.hpp"

SUFFIXES = {".h", ".hpp", ".cc", ".c", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
MPI_HEADER = re.compile(r"^(mpi|mpi-ext|mpio)\.h$")
UCX_HEADER = re.compile(r"^(ucp|ucs|uct|ucm)/")
UCX_HEADER = re.compile(r"^(ucp|ucs|uct|ucm)/")
GPU_HEADER = re.compile(r"^(cuda|cublas|nccl|nvml|cub/|thrust/|cooperative_groups)")


def longest_match(folders, path):
    """The longest of the folders that holds a path relative to the root, or None."""
    matches = [folder for folder in folders if path.startswith(folder + "/")]
    return max(matches, key=len, default=None)


def layer_of(path):
    """The layer that a path relative to the root belongs to, or None."""
    return longest_match(LAYERS, path)


def room_of(path):
    """The room that a path relative to the root belongs to, or None."""
    return longest_match(ROOMS, path)


def room_problem(path, target):
    """What is wrong with one include between rooms, or None."""
    room, target_room = room_of(path), room_of(target)
    if room is None or target_room is None or target_room == room or target_room in ROOMS[room]:
        return None
    return f"{room} may not include {target_room}"


def problem_with(root, path, quoted, target):
    """What is wrong with one include, or None."""
    layer = layer_of(path)
    if MPI_HEADER.match(target) and "mpi" not in pathlib.PurePosixPath(path).name and "/mpi/" not in path:
        return "MPI headers belong in files named for MPI (mpi_*) or in a folder mpi/"
    if UCX_HEADER.match(target) and "/ucx/" not in path:
        return "UCX headers belong below a ucx/ folder"
    if UCX_HEADER.match(target) and "/ucx/" not in "/" + path:
        return "UCX headers belong below a ucx/ folder"
    if GPU_HEADER.match(target) and "/cuda/" not in "/" + path:
        return "CUDA and NCCL headers belong below a cuda/ folder"
    if target.startswith(PUBLIC_PREFIX):
        if "public" not in LAYERS[layer]:
            return f"{layer} may not include the public API"
        outside = C_ABI if path.endswith(".c") else FACADE
        if layer == "examples" and target in (TRAINER, PARAMETER_SERVER):
            return None
        if layer in FACADE_ONLY and target not in (outside, TORCH):
            return f"{layer} is written as an outsider would: include <{outside}>"
        return None
    target_layer = layer_of(target)
    if target_layer is not None:
        if target_layer == layer or target_layer in LAYERS[layer]:
            return room_problem(path, target)
        return f"{layer} may not include {target_layer}"
    if quoted and not (root / target).exists():
        return "quoted includes are written from the root of the repository"
    if quoted:
        return f"{layer} may not include files outside the layers"
    return None


def includes_of(path):
    """(line number, quoted, target) of every include of a file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1] == '"', match[2]


def circles(graph):
    """The circles of a graph {node: set of nodes}, each as a sorted list (Tarjan's strongly connected sets)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            group = stack[stack.index(node):]
            del stack[stack.index(node):]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def product_files(root):
    """Every source file of the layers, as (path, path relative to the root)."""
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*")):
            relative = path.relative_to(root).as_posix()
            if path.suffix in SUFFIXES and layer_of(relative) == layer:
                yield path, relative


def check(root):
    """All problems below root, as lines, and the number of files read."""
    problems = []
    files = 0
    graph = collections.defaultdict(set)
    for path, relative in product_files(root):
        files += 1
        if relative.startswith(LAYERS_WITH_ROOMS) and room_of(relative) is None:
            problems.append(f"{relative}:1: lies in no room of its layer: move it, or name its folder in ROOMS")
        stem = relative.rsplit(".", 1)[0]
        for number, quoted, target in includes_of(path):
            problem = problem_with(root, relative, quoted, target)
            if problem:
                problems.append(f"{relative}:{number}: #include {target}: {problem}")
            elif layer_of(target) and target.rsplit(".", 1)[0] != stem:
                graph[stem].add(target.rsplit(".", 1)[0])
    for circle in circles(graph):
        problems.append(f"{circle[0]}: includes itself in a circle (header and source count as one): "
                        + " <-> ".join(circle))
    return problems, files


def files_per_folder(root):
    """{folder: how many source files lie in it, those of its sub-folders not counted}."""
    counts = collections.Counter()
    for top in sorted({layer.split("/")[0] for layer in LAYERS} | {"test"}):
        for path in (root / top).rglob("*"):
            if path.suffix in SUFFIXES:
                counts[path.parent.relative_to(root).as_posix()] += 1
    return counts


def crowded_folders(counts):
    """A line for each folder that holds more source files than it may."""
    return [f"{folder}: {count} source files, and {MOST_FILES} are the limit: cut it into rooms"
            for folder, count in sorted(counts.items()) if count > MOST_FILES]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--folders", action="store_true", help="print how many source files each folder holds")
    options = parser.parse_args()
    root = options.root.resolve()
    problems, files = check(root)
    counts = files_per_folder(root)
    problems += crowded_folders(counts)
    if options.folders:
        for folder, count in sorted(counts.items()):
            print(f"{count:4} {folder}")
    for problem in problems:
        print(problem)
    if files == 0:
        print(f"{root}: no source file found: is this the root of the repository?")
        return 1
    print(f"{files} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
