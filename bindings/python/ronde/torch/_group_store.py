# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a process group meet over the group's store."""
from __future__ import annotations

import datetime
import time
from typing import Any, Optional

from torch._C._distributed_c10d import PrefixStore

from .._engine import Engine
from .._library import Error, Status

_LOOK_SECONDS = 0.005


class _TorchStore:
    """A store of torch.distributed as one of the runtime's.

    Its wait() is not used for short looks: a TCPStore of PyTorch 1.13 hears the answer to a wait that has timed out
    later, as that to its next question.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    def set(self, key: str, value: bytes) -> None:
        self._store.set(key, value)
        self._store.add(f"{key}/there", 1)

    def get(self, key: str, seconds: float) -> Optional[bytes]:
        until = time.monotonic() + seconds
        pause = _LOOK_SECONDS
        while self._store.add(f"{key}/there", 0) == 0:
            left = until - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(pause, left))
            pause = min(2 * pause, 0.1)
        return self._store.get(key)


def meet(store: Any, rank: int, size: int, timeout: datetime.timedelta, name: str) -> Engine:
    """The engine of this rank. Waits for the others as long as the group's timeout says.

    Raises Error if a rank has not come by then. A store serves any number of groups one after another: each rank counts
    those that it has opened.
    """
    opened = store.add(f"ronde/opened/{rank}", 1)
    ours = PrefixStore(f"ronde/{opened}", store)
    ours.set(f"rank/{rank}", b"here")
    if ours.add("arrived", 1) == size:
        ours.add("all", 1)
    until = time.monotonic() + timeout.total_seconds()
    pause = _LOOK_SECONDS
    while ours.add("all", 0) == 0:
        if time.monotonic() > until:
            raise Error(f"{name}: {ours.add('arrived', 0)} of {size} ranks have called init_process_group() or "
                        f"new_group() within {timeout.total_seconds():g} s", Status.DEADLINE)
        time.sleep(pause)
        pause = min(2 * pause, 0.1)
    return Engine(rank=rank, size=size, store=_TorchStore(ours))
