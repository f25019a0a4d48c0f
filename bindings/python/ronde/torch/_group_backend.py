# SPDX-License-Identifier: Apache-2.0
"""The back end "ronde" of PyTorch's own ProcessGroup, from which names, stores, dispatch, hooks, the profiler's events
and groups of several devices come. Needs a PyTorch that has back ends in Python (2.15 does)."""
from __future__ import annotations

import datetime
from typing import Any, Optional, Sequence

import torch.distributed as dist
from torch._C._distributed_c10d import Backend

from ._group_operations import GroupOperations
from ._group_store import Parent
from ._uncompiled import leave_alone
from ._work_answers import install


_whole: set["RondeBackend"] = set()  # open ones of whose C++ half alone PyTorch's wrapper knows


class RondeBackend(GroupOperations, Backend):
    """Ranks of torch.distributed over Ronde, for dense tensors on the CPU; an allreduce also takes sparse ones."""

    def __init__(self, store: Any, rank: int, size: int, timeout: datetime.timedelta, name: str = "",
                 parent: Optional[Parent] = None, global_ranks: Sequence[int] = ()) -> None:
        Backend.__init__(self, rank, size)
        self._options = Backend.Options("ronde", timeout)
        self._options.group_name = name
        self._options.global_ranks_in_group = list(global_ranks)
        self._open(store, rank, size, timeout, name, parent)
        if dist.get_debug_level() == dist.DebugLevel.DETAIL:
            _whole.add(self)

    def _let_go(self) -> None:
        super()._let_go()
        _whole.discard(self)

    @property
    def options(self) -> Backend.Options:
        """What PyTorch makes groups of this group with."""
        return self._options

    # PyTorch's own properties of these names ask the class for its own, and so themselves.
    supports_splitting = True
    supports_coalescing = supports_shrinking = supports_reconfigure = supports_window = False
    _supports_time_estimate = False

    def split(self, store: Any, ranks: Sequence[int], opts: Any) -> "RondeBackend":
        """The group of some ranks of this one, each of which calls it."""
        if self._rank not in ranks:
            raise NotImplementedError(f"split_group: rank {self._rank} is in none of the groups, and PyTorch does not "
                                      "let a back end in Python say so: name it in a group of its own, or use "
                                      "new_group()")
        return RondeBackend(store, ranks.index(self._rank), len(ranks), opts._timeout, opts.group_name,
                            self.parent_of(ranks), opts.global_ranks_in_group)

    def merge(self, store: Any, opts: Any, rank: int, size: int) -> "RondeBackend":
        """A group of ranks that may come from several groups, which meet at the store."""
        return RondeBackend(store, rank, size, opts._timeout, opts.group_name)

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        super().set_timeout(timeout)
        self._options._timeout = timeout

    def _add_ephemeral_timeout(self, _timeout: datetime.timedelta) -> None:
        raise NotImplementedError("_add_ephemeral_timeout: the back end ronde has no timeouts for a while; use "
                                  "torch.distributed.set_timeout(), or wait(timeout) of a work")


install()
leave_alone()
