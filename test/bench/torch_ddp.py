#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a classifier of Fashion-MNIST with PyTorch's DistributedDataParallel, or FSDP2, over several back ends, whose
names alone differ, and prints images/s. Ranks are processes of this host with one thread each; back ends take turns.

usage: torch_ddp.py [--backends ronde gloo] [--model mlp] [--sharded] [--ranks 2] [--batch 64] [--steps 200] [--rounds 5]

Needs the package ronde (PYTHONPATH, LIBRONDE or an installed wheel) and PyTorch. The last line is key=value: the median
images/s of each back end, and the first one's over each other's.
"""
import argparse
import gzip
import os
import pathlib
import statistics
import sys
import tempfile
import time

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import ronde.torch  # makes the back end known

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")


def load_images(folder):
    """Fashion-MNIST's training images, normalised, and their classes."""
    images, classes = (gzip.decompress((folder / f"train-{name}.gz").read_bytes())
                       for name in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    pixels = numpy.frombuffer(images, numpy.uint8, offset=16).reshape(-1, 1, 28, 28)
    return (torch.from_numpy((pixels / 255.0).astype(numpy.float32)),
            torch.from_numpy(numpy.frombuffer(classes, numpy.uint8, offset=8).astype(numpy.int64)))


def make_model(name):
    torch.manual_seed(1)
    if name == "mlp":
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 128), torch.nn.ReLU(),
                                   torch.nn.Linear(128, 10))
    return torch.nn.Sequential(torch.nn.Conv2d(1, 32, 3), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3), torch.nn.ReLU(),
                               torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(9216, 128), torch.nn.ReLU(),
                               torch.nn.Linear(128, 10))


def distributed(model, options):
    if not options.sharded:
        return DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard  # pylint: disable=import-outside-toplevel; 1.13 has none
    mesh = dist.device_mesh.init_device_mesh("cpu", (options.ranks,))
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if dist.get_backend() == "ronde":
        ronde.torch.keep_buffers_on_board(model)
    return model


def train(backend, store, rank, options, data):
    """One training; returns (seconds, last loss)."""
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=options.ranks)
    images, classes = data
    model = distributed(make_model(options.model), options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(2))[rank::options.ranks]
    warm_up = max(5, options.steps // 10)
    for step in range(warm_up + options.steps):
        if step == warm_up:
            dist.barrier()
            began = time.perf_counter()
        batch = order[(step * options.batch) % (len(order) - options.batch):][:options.batch]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[batch]), classes[batch])
        loss.backward()
        optimizer.step()
    dist.barrier()
    seconds = time.perf_counter() - began
    dist.destroy_process_group()
    return seconds, float(loss)


def rank_main(rank, folder, options):
    torch.set_num_threads(1)
    data = load_images(options.data)
    rates = {backend: [] for backend in options.backends}
    for number in range(options.rounds):
        for backend in options.backends:
            seconds, loss = train(backend, f"{folder}/{backend}{number}", rank, options, data)
            rates[backend].append(options.ranks * options.batch * options.steps / seconds)
            if rank == 0:
                print(f"round {number} {backend:8} {rates[backend][-1]:10.0f} images/s  loss {loss:.4f}", flush=True)
    if rank == 0:
        medians = {backend: statistics.median(rates[backend]) for backend in options.backends}
        first = options.backends[0]
        print(f"torch={torch.__version__} model={options.model} sharded={options.sharded} ranks={options.ranks} "
              f"batch={options.batch} " + " ".join(
            [f"{backend}={median:.0f}" for backend, median in medians.items()] +
            [f"{first}_over_{other}={medians[first] / medians[other]:.2f}" for other in options.backends[1:]]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", default=["ronde", "gloo"])
    parser.add_argument("--model", choices=["mlp", "cnn"], default="mlp")
    parser.add_argument("--sharded", action="store_true", help="by fully_shard(), of the current PyTorch")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, help="images a rank takes in a step")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=pathlib.Path, default=DATA)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_main, (folder, options), nprocs=options.ranks)


if __name__ == "__main__":
    sys.exit(main())
