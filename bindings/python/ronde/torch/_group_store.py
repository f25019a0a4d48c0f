# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a process group find each other: as a process set of their parent, or over the group's store."""
from __future__ import annotations

import datetime
import threading
import time
from typing import Any, NamedTuple, Optional, Sequence

from torch._C._distributed_c10d import PrefixStore

from .._engine import Engine
from .._library import Error, Status

_LOOK_SECONDS = 0.005
_PASSED, _FAILED = 1, 2  # the verdict of a barrier over the store
_STORE_TIMEOUT = datetime.timedelta(seconds=2)  # for an answer about an operation that is late


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


class Parent(NamedTuple):
    """An engine that all ranks of a group have, and which of its ranks they are, in the group's order."""

    engine: Engine
    ranks: Sequence[int]


def part_of(store: Any, rank: int) -> Any:
    """The group's part of the store, which serves any number of groups one after another: each rank counts those that
    it has opened."""
    return PrefixStore(f"ronde/{store.add(f'ronde/opened/{rank}', 1)}", store)


def meet(ours: Any, rank: int, size: int, timeout: datetime.timedelta, name: str) -> Engine:
    """The engine of this rank, which meets the others in the group's part of the store. Waits for them as long as the
    timeout says, and raises Error if a rank has not come by then."""
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


class RollCall:
    """Which ranks have called an operation that is late. A rank says so in the store once it has waited a while, so
    that operations in time cost nothing. A rank that has called and does not wait has not said so.

    The store may fail or be gone by then: what it does not tell is not known, and nothing else depends on it.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store: Optional[Any] = store
        self._own: Optional[Any] = None
        self._lock = threading.Lock()
        self._rank, self._size = rank, size
        self._said = 0

    def say(self, number: int) -> None:
        """This rank has called `number` operations, and waits for the last of them."""
        try:
            with self._lock:
                if number > self._said:
                    self._reach().add(f"called/{self._rank}", number - self._said)
                    self._said = number
        except Exception:  # the error of the operation says more
            pass

    def missing(self, number: int) -> Optional[list[int]]:
        """The other ranks that have not said that they called so many; None where the store does not tell."""
        try:
            with self._lock:
                return [rank for rank in range(self._size)
                        if rank != self._rank and self._reach().add(f"called/{rank}", 0) < number]
        except Exception:
            return None

    def await_all(self, number: int, timeout: float, name_all: bool) -> None:
        """The group's `number`th barrier over the store, which rank 0 watches; it does not touch the engine. Raises
        Error on rank 0 with the first rank that is not here in time, or all of them, and on the others, too."""
        until = time.monotonic() + timeout
        ours, verdict = f"monitored/{number}/{self._rank}", f"monitored/{number}/verdict"
        if timeout <= 0:
            raise self._late(f"Rank {self._rank} timed out in monitoredBarrier after {1e3 * timeout:g} ms")
        if self._rank:
            self._look(ours, 1)
            if self._await(verdict, until) != _PASSED:
                raise self._late(f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while "
                                 f"waiting for send/recv from rank 0: it had not passed after {1e3 * timeout:g} ms")
            return
        late = []
        for rank in range(1, self._size):
            if not self._await(f"monitored/{number}/{rank}", until):
                late.append(str(rank))
                if not name_all:
                    break
        self._look(verdict, _FAILED if late else _PASSED)
        if late:
            raise self._late(f"Rank{'s' if len(late) > 1 else ''} {', '.join(late)} failed to pass monitoredBarrier in "
                             f"{1e3 * timeout:g} ms")

    def _late(self, text: str) -> Error:
        return Error(f"[Rank {self._rank}]: {text}", Status.DEADLINE)

    def _look(self, key: str, more: int = 0) -> int:
        with self._lock:
            return self._reach().add(key, more)

    def _await(self, key: str, until: float) -> int:
        """What the key counts, once it does or at the time `until`."""
        pause = _LOOK_SECONDS
        while not (found := self._look(key)) and (left := until - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            pause = min(2 * pause, 0.1)
        return found

    def _reach(self) -> Any:
        """A connection of its own where the store has that: the program's may be waiting in another thread."""
        if self._store is None:
            raise RuntimeError("the group has ended")
        if self._own is None:
            if not hasattr(self._store, "clone"):
                return self._store
            self._own = self._store.clone()
            self._own.set_timeout(_STORE_TIMEOUT)
        return self._own

    def close(self) -> None:
        with self._lock:
            self._store = self._own = None
