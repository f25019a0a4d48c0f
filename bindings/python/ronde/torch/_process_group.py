# SPDX-License-Identifier: Apache-2.0
"""The back end "ronde" where PyTorch has no back ends in Python (1.13): a whole ProcessGroup."""
from __future__ import annotations

import collections
import datetime
from typing import Any, Optional

import torch.distributed as dist

from ._group_operations import GroupOperations
from ._group_store import Parent
from ._group_work import Started

_KEPT = 16  # works of which PyTorch 1.13 may hold only the C++ half


class RondeProcessGroup(GroupOperations, dist.ProcessGroup):
    """Ranks of torch.distributed over Ronde, for dense tensors on the CPU; an allreduce also takes sparse ones."""

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta, name: str = "",
                 parent: Optional[Parent] = None) -> None:
        dist.ProcessGroup.__init__(self, rank, size)
        self._kept: "collections.deque[Started]" = collections.deque(maxlen=_KEPT)
        self._open(store, rank, size, timeout, name, parent)

    def _keep_alive(self, work: Started) -> None:
        self._kept.append(work)

    def _let_go(self) -> None:
        super()._let_go()
        self._kept.clear()
