# SPDX-License-Identifier: Apache-2.0
"""The arguments of torch.distributed's operations, which come in several forms."""
from __future__ import annotations

from typing import Any, Sequence, Union

import torch
from torch._C._distributed_c10d import ReduceOp

from .._library import InvalidArgument

Tensors = Union[torch.Tensor, Sequence[torch.Tensor]]


def list_of(tensors: Tensors) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def only_of(lists: Any) -> Any:
    """What belongs to this rank's one device: torch's interface has a list with an entry for each of several."""
    if isinstance(lists, torch.Tensor):
        return lists
    if len(lists) != 1:
        raise InvalidArgument(f"tensors of {len(lists)} devices: the back end ronde takes one for each rank")
    return lists[0]


def matrix_of(lists: Any) -> list[torch.Tensor]:
    """The list of a list of lists, or the list itself."""
    return list(lists) if lists and isinstance(lists[0], torch.Tensor) else list(only_of(lists))


def root_of(opts: Any) -> int:
    return opts if isinstance(opts, int) else getattr(opts, "rootRank", 0)


def op_of(opts: Any, op: Any = None) -> Any:
    return op if op is not None else getattr(opts, "reduceOp", ReduceOp.SUM if opts is None else opts)


def counts_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    return [tensor.numel() for tensor in tensors]


def require_each(tensors: Sequence[Any], size: int, what: str) -> None:
    if len(tensors) != size:
        raise InvalidArgument(f"{len(tensors)} {what} for {size} ranks")


def splits_of(tensor: torch.Tensor, splits: Sequence[int], size: int) -> list[int]:
    """The rows for each rank: as many for all of them, unless the caller says how many."""
    rows = tensor.shape[0] if tensor.dim() else -1
    if not splits and rows >= 0 and rows % size == 0:
        return [rows // size] * size
    if len(splits) != size or sum(splits) != rows:
        raise InvalidArgument(f"splits {list(splits)} of a tensor of shape {tuple(tensor.shape)} over {size} ranks: "
                              "they must add up to its rows")
    return list(splits)
