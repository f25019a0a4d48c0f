# SPDX-License-Identifier: Apache-2.0
"""What the tests of the back end "ronde" share."""
import argparse
import datetime
import os
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist

from ronde.torch._backend import has_python_backends

SECONDS = datetime.timedelta(seconds=120)
NEW_TORCH = int(torch.__version__.split(".")[0]) >= 2


def group_class():
    """What init_process_group("ronde") makes with this PyTorch: a back end, or a whole group."""
    if has_python_backends():
        from ronde.torch._group_backend import RondeBackend as Group  # pylint: disable=import-outside-toplevel
    else:
        from ronde.torch._process_group import RondeProcessGroup as Group  # pylint: disable=import-outside-toplevel
    return Group


def make_group(*arguments):
    return group_class()(*arguments)


def place_of(rank, dtype=torch.float32, shape=(5,)):
    """What a rank contributes: values that are exact in every type."""
    return (torch.arange(torch.Size(shape).numel()) % 3 + rank + 1).reshape(shape).to(dtype)


def held():
    """Descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


class Ranks(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.all = range(self.size)

    def assert_is(self, tensor, expected):
        self.assertEqual(tensor.dtype, expected.dtype)
        self.assertTrue(torch.equal(tensor, expected), f"{tensor} is not {expected}")


def run_tests(backend, rank, size, init_method, arguments):
    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=init_method, rank=rank, world_size=size, timeout=SECONDS)
    ended = unittest.main(argv=arguments, exit=False).result
    dist.destroy_process_group()
    return 0 if ended.wasSuccessful() else 1


def fork_ranks(count, run):
    """run(rank, folder) in as many processes, which share a new folder; the largest exit code."""
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.get_context("fork")  # PyTorch is loaded once
        ranks = [context.Process(target=lambda rank=rank: sys.exit(run(rank, folder))) for rank in range(count)]
        for one in ranks:
            one.start()
        for one in ranks:
            one.join()
        return max(abs(one.exitcode) for one in ranks)


def main(name):
    """Runs the tests of the program's module in ranks that this starts itself (--ranks N), torchrun's or mpirun's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="ronde")
    options, arguments = parser.parse_known_args()
    arguments = [name, *arguments]
    if "RANK" in os.environ:
        return run_tests(options.backend, -1, -1, "env://", arguments)
    if "PMIX_NAMESPACE" in os.environ:  # the name of mpirun's job
        rank, size = (int(os.environ[f"OMPI_COMM_WORLD_{what}"]) for what in ("RANK", "SIZE"))
        store = f"{tempfile.gettempdir()}/{name}_{os.environ['PMIX_NAMESPACE']}"
        return run_tests(options.backend, rank, size, f"file://{store}", arguments)
    return fork_ranks(options.ranks, lambda rank, folder: run_tests(
        options.backend, rank, options.ranks, f"file://{folder}/store", arguments))
