#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""destroy_process_group() lets go of the engine, its threads and its descriptors then and there (not when Python
collects its cycles, which is off here), and ranks can meet again at the same port.

usage: torch_ends.py [--backend ronde] [--rounds 5]

Passes over gloo, too.
"""
import argparse
import contextlib
import datetime
import gc
import os
import pathlib
import random
import socket
import sys
import threading
import time
import warnings

import torch
import torch.distributed as dist

import ronde.torch  # noqa: F401, makes the back end known
from torch_group_kit import NEW_TORCH, fork_ranks, held

TIMEOUT = datetime.timedelta(seconds=60)


def settled(expected):
    """What is held, once it is no more than expected or has had the time: a thread that ends takes a moment."""
    until = time.monotonic() + 1
    now = held()
    while any(one > other for one, other in zip(now, expected)) and time.monotonic() < until:
        time.sleep(0.02)
        now = held()
    return now


def use(group=None):
    """Operations that start every kind of thread: for the future of one that is not done, too."""
    tensor = torch.ones(1000)
    if dist.get_rank(group) == 1:
        time.sleep(0.1)
    work = dist.all_reduce(tensor, group=group, async_op=True)
    future = work.get_future()
    work.wait()
    future.wait()
    assert tensor[0].item() == dist.get_world_size(group)
    dist.barrier(group)


def wait_for(path):
    until = time.monotonic() + TIMEOUT.total_seconds()
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.01)


def rounds(backend, rank, folder, port, count):
    gc.disable()
    warnings.simplefilter("ignore")  # of barriers without devices
    seen = []
    for number in range(count):
        at = port if NEW_TORCH else port + number  # with PyTorch 1.13 no back end meets twice at a port
        dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{at}", rank=rank, world_size=2, timeout=TIMEOUT)
        use()
        use(dist.new_group(timeout=TIMEOUT))
        dist.destroy_process_group()
        seen.append(settled(seen[0] if seen else (0, 1)))
        # Else rank 1 may come to the store that rank 0 is about to end, with every back end.
        gone = f"{folder}/round {number}"
        if rank == 0:
            pathlib.Path(gone).touch()
        wait_for(gone)
    return seen


def free_ports(count):
    """The first of so many that are free, below those that the kernel gives to other programs' connections."""
    for first in random.sample(range(10000, 30000, count), 200):
        try:
            with contextlib.ExitStack() as stack:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    raise OSError("no port is free")


def run(backend, rank, folder, port, count):
    before = held()
    seen = rounds(backend, rank, folder, port, count)
    print(f"rank {rank}: {before} before, (descriptors, threads) after each round: {seen}", flush=True)
    names = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    grown = [now for now in seen[1:] if now[0] > seen[0][0] + len(seen) // 2 or now[1] > seen[0][1]]
    if grown or (backend == "ronde" and names):
        print(f"rank {rank}: what a group holds grows, or threads are left: {names}", flush=True)
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="ronde")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    port = free_ports(options.rounds)
    return fork_ranks(2, lambda rank, folder: run(options.backend, rank, folder, port, options.rounds))


if __name__ == "__main__":
    sys.exit(main())
