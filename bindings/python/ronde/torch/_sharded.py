# SPDX-License-Identifier: Apache-2.0
"""Buffers of fully_shard() (FSDP2) on the board: ranks of a host read each other's shards and gradients where they lie.

PyTorch asks no back end in Python for memory; what makes the calls of one module's group may bring its own."""
from __future__ import annotations

import math
import threading
from typing import Any, Optional, Sequence

import numpy
import torch
import torch.distributed as dist

from .._engine import Engine
from .._library import LIBRARY, InvalidArgument, Status
from .._numpy import allocated
from ._group_buckets import MOST_COPIED_BYTES
from ._group_core import GroupCore


class _OnBoard:
    """Buffers that are used again as soon as nobody else has them: an allocation costs as much as a small call. They stay
    until the model and its groups are gone."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._made: dict[tuple[int, torch.dtype], list[torch.Tensor]] = {}
        self._lock = threading.Lock()

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        count = math.prod(size)
        if device.type != "cpu" or count * dtype.itemsize <= MOST_COPIED_BYTES or not self._engine.is_open:
            return torch.empty(count, dtype=dtype, device=device)
        with self._lock:
            made = self._made.setdefault((count, dtype), [])
            for tensor in made:
                storage = tensor.untyped_storage()
                if torch._C._storage_Use_Count(storage._cdata) == 2:  # `tensor` and `storage`
                    return tensor.detach()
            memory = allocated(self._engine, LIBRARY.ronde_buffer_allocate_anywhere, count * dtype.itemsize, numpy.uint8)
            made.append(torch.from_numpy(memory).view(dtype))
            return made[-1].detach()


class _AllGather(_OnBoard):
    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup,
                 async_op: bool = False) -> Optional[dist.Work]:
        return dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)


class _ReduceScatter(_OnBoard):
    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, op: Any,
                 async_op: bool = False) -> Optional[dist.Work]:
        return dist.reduce_scatter_tensor(output_tensor, input_tensor, op=op, group=group, async_op=async_op)


def keep_buffers_on_board(model: torch.nn.Module, group: Optional[dist.ProcessGroup] = None) -> None:
    """Has all modules of the model that fully_shard() has been called on use buffers that the ranks of a host share.

    group: that of the shards, of the back end ronde; None: all ranks. Without room on the board buffers are ordinary
    memory."""
    import torch.distributed.fsdp as fsdp  # pylint: disable=import-outside-toplevel
    kind: Any = getattr(fsdp, "FSDPModule", None)
    if not hasattr(kind, "set_custom_reduce_scatter"):
        raise InvalidArgument(f"PyTorch {torch.__version__} has no fully_shard() that takes buffers of others",
                              Status.UNSUPPORTED)
    whole: Any = group if group is not None else dist.group.WORLD
    back_end = whole._get_backend(torch.device("cpu"))
    if not isinstance(back_end, GroupCore):
        raise InvalidArgument(f"buffers on the board are of groups of the back end ronde, and not of {back_end.name()}")
    gather, scatter = _AllGather(back_end._engine), _ReduceScatter(back_end._engine)
    sharded = [module for module in model.modules() if isinstance(module, kind)]
    if not sharded:
        raise InvalidArgument("no module of the model is sharded: call fully_shard() before keep_buffers_on_board()")
    for module in sharded:
        module.set_custom_all_gather(gather)
        module.set_custom_reduce_scatter(scatter)
