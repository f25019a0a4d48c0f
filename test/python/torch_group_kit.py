# SPDX-License-Identifier: Apache-2.0
"""What the tests of the back end "ronde" share."""
import unittest

import torch
import torch.distributed as dist

from ronde.torch._backend import has_python_backends

NEW_TORCH = int(torch.__version__.split(".")[0]) >= 2


def make_group(*arguments):
    """What init_process_group("ronde") makes with this PyTorch: a back end, or a whole group."""
    if has_python_backends():
        from ronde.torch._group_backend import RondeBackend as Group  # pylint: disable=import-outside-toplevel
    else:
        from ronde.torch._process_group import RondeProcessGroup as Group  # pylint: disable=import-outside-toplevel
    return Group(*arguments)


def place_of(rank, dtype=torch.float32, shape=(5,)):
    """What a rank contributes: values that are exact in every type."""
    return (torch.arange(torch.Size(shape).numel()) % 3 + rank + 1).reshape(shape).to(dtype)


class Ranks(unittest.TestCase):
    def setUp(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.all = range(self.size)

    def assert_is(self, tensor, expected):
        self.assertEqual(tensor.dtype, expected.dtype)
        self.assertTrue(torch.equal(tensor, expected), f"{tensor} is not {expected}")
