#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One way of a message between two ranks, half of there and back, with send and recv of torch.distributed over several
back ends, whose names alone differ. Ranks are processes of this host with one thread each; back ends take turns.

usage: torch_pairs.py [--backends ronde gloo] [--bytes 8 1048576] [--rounds 15]

Needs the package ronde (PYTHONPATH, LIBRONDE or an installed wheel) and PyTorch. A line of key=value for each size: the
median microseconds of each back end, and the others' over the first one's.
"""
import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist

import ronde.torch  # noqa: F401  makes the back end known  pylint: disable=unused-import


def one_way(group, rank, tensor, repeats):
    """Microseconds."""
    dist.barrier(group=group)
    begin = time.perf_counter()
    for _ in range(repeats):
        for sender in (0, 1):
            if rank == sender:
                dist.send(tensor, 1 - rank, group=group)
            else:
                dist.recv(tensor, 1 - rank, group=group)
    return (time.perf_counter() - begin) / repeats / 2 * 1e6


def rank_main(rank, store, options):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    groups = {name: dist.new_group(backend=name) for name in options.backends}
    for size in options.bytes:
        tensor = torch.ones(size, dtype=torch.uint8)
        repeats = max(10, min(500, (32 << 20) // size))
        times = {name: [] for name in groups}
        for turn in range(-1, options.rounds):
            for name, group in groups.items():
                took = one_way(group, rank, tensor, repeats)
                if turn >= 0:  # the first only opens connections
                    times[name].append(took)
        if rank != 0:
            continue
        first, *others = options.backends
        words = [f"{name}_us={statistics.median(times[name]):.1f}" for name in groups]
        for other in others:
            ratio = statistics.median(b / a for a, b in zip(times[first], times[other]))
            words.append(f"{other}/{first}={ratio:.2f}")
        print(f"bytes={size}", *words, flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", nargs="+", default=["ronde", "gloo"])
    parser.add_argument("--bytes", type=int, nargs="+", default=[8, 1 << 20])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_main, (os.path.join(folder, "store"), options), nprocs=2)


if __name__ == "__main__":
    main()
