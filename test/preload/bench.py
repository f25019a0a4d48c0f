#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MPI_Allreduce in a loop that knows only MPI, with and without libronde_mpi_allreduce.so, in turns.

usage: bench.py BUILD_FOLDER [--rounds N] [--ranks N] [--most BYTES]       (build the target mpi_stock_loop before)

Prints the medians over the rounds, and how many times faster the preloaded library makes the call. Judges nothing.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys


# How many calls of each size are measured.
SIZES = {8: 2000, 512: 2000, 4 << 10: 2000, 8 << 10: 1000, 64 << 10: 500, 1 << 20: 100, 4 << 20: 20, 16 << 20: 20,
         64 << 20: 20}


def microseconds(build, ranks, size, calls, accelerated):
    flags = ["--accelerate-mpi"] if accelerated else []
    command = [build / "bin/ronderun", "-np", str(ranks), *flags, build / "bin/test/mpi_stock_loop", str(size), str(calls)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, env=os.environ)
    if done.returncode != 0 or ("go through Ronde" in done.stderr) != accelerated:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--most", type=int, default=64 << 20, help="bytes of the largest vector")
    options = parser.parse_args()
    print("    bytes | MPI_Allreduce, us | accelerated, us | times faster")
    for size, calls in SIZES.items():
        if size > options.most:
            continue
        times = {False: [], True: []}
        for _ in range(options.rounds):
            for accelerated in times:
                times[accelerated].append(microseconds(options.build, options.ranks, size, calls, accelerated))
        plain, fast = (statistics.median(times[accelerated]) for accelerated in times)
        print(f"{size:9} | {plain:17.2f} | {fast:15.2f} | {plain / fast:.2f}")


if __name__ == "__main__":
    main()
