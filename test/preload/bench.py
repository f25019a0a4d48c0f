#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MPI_Allreduce in a loop that knows only MPI, with and without libronde_mpi_allreduce.so, in turns.

usage: bench.py BUILD_FOLDER [--rounds N] [--ranks N] [--most MIB]       (build the target mpi_stock_loop before)

Prints the medians over the rounds, and how many times faster the preloaded library makes the call. Judges nothing.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys


def microseconds(build, ranks, mebibytes, calls, accelerated):
    flags = ["--accelerate-mpi"] if accelerated else []
    command = [build / "bin/ronderun", "-np", str(ranks), *flags, build / "bin/test/mpi_stock_loop", str(mebibytes), str(calls)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, env=os.environ)
    if done.returncode != 0 or ("go through Ronde" in done.stderr) != accelerated:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--most", type=int, default=64, help="MiB of the largest vector")
    options = parser.parse_args()
    print("MiB | MPI_Allreduce, us | accelerated, us | times faster")
    for mebibytes in (size for size in (1, 4, 16, 64) if size <= options.most):
        times = {False: [], True: []}
        for _ in range(options.rounds):
            for accelerated in times:
                times[accelerated].append(microseconds(options.build, options.ranks, mebibytes, 20, accelerated))
        plain, fast = (statistics.median(times[accelerated]) for accelerated in times)
        print(f"{mebibytes:3} | {plain:17.0f} | {fast:15.0f} | {plain / fast:.2f}")


if __name__ == "__main__":
    main()
