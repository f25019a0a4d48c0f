# SPDX-License-Identifier: Apache-2.0
"""What the tests of ronde.torch share."""
import unittest

import torch

import ronde.torch as hvd
from torch_models import Unused


def make_model(seed=1):
    torch.manual_seed(seed)
    return Unused()


def share(tensor):
    return tensor.chunk(hvd.size())[hvd.rank()]


def only_here():
    """What an OnlyHere becomes where it is read."""
    if hvd.rank() == 1:
        raise RuntimeError("not on rank 1")


class OnlyHere:
    """Rank 1 cannot read it."""

    def __reduce__(self):
        return only_here, ()


class Ranks(unittest.TestCase):
    def setUp(self):
        hvd.init()
        self.rank, self.size = hvd.rank(), hvd.size()
