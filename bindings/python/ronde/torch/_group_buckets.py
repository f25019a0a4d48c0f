# SPDX-License-Identifier: Apache-2.0
"""Buckets of DistributedDataParallel on the board: their sums are made where they lie, without a copy.

PyTorch makes a bucket in memory of its own, and asks no back end in Python for another. So the memory under the
bucket's storage is changed when it first comes to an allreduce: all views of it, gradients among them, have that same
storage and follow. Nobody has an address of it by then: PyTorch makes a bucket, and anew after the first backward pass,
just before it is filled."""
from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Optional

import numpy
import torch

from .._engine import Engine
from .._library import LIBRARY
from .._numpy import allocated

MOST_COPIED_BYTES = 65536  # what is smaller is not reduced where it lies


def _is_pytorchs(caller: Optional[FrameType]) -> bool:
    """Whether a backward pass called, and no program, which may have lent the memory by its address."""
    return caller is None or caller.f_globals.get("__name__") == "torch.autograd.graph"


class Buckets:
    """Those of one group that have been moved, by their addresses. On the board these are of nothing else."""

    def __init__(self) -> None:
        self._moved: set[int] = set()
        # 1.13 cannot.
        self._may_move = hasattr(getattr(torch, "UntypedStorage", None), "_swap_data_ptr_")

    def take(self, engine: Engine, tensor: torch.Tensor) -> None:
        """Moves the tensor if it is a bucket. Its caller is that of the operation."""
        if not self._may_move or tensor.dim() != 1 or tensor.nbytes <= MOST_COPIED_BYTES:
            return
        if tensor.data_ptr() in self._moved or not _is_pytorchs(sys._getframe(1).f_back):
            return
        storage: Any = tensor.untyped_storage()
        # What may not grow has come from elsewhere, or NumPy has its address.
        if storage.nbytes() != tensor.nbytes or not storage.resizable() or storage.is_shared() or tensor.requires_grad:
            return
        try:
            home = torch.from_numpy(allocated(engine, LIBRARY.ronde_buffer_allocate, tensor.nbytes, numpy.uint8))
            home.copy_(tensor.detach().view(torch.uint8))
            storage._swap_data_ptr_(home.untyped_storage())
        except RuntimeError:  # no room, or the job has failed, of which the operation itself tells
            self._may_move = False
            return
        self._moved.add(tensor.data_ptr())
