# SPDX-License-Identifier: Apache-2.0
"""A group of torch.distributed: its engine, how its operations start, and how it ends. It is the same for a back end
that PyTorch's own ProcessGroup holds and for a whole ProcessGroup, which older versions want."""
from __future__ import annotations

import collections
import datetime
import threading
import time
import warnings
import weakref
from typing import Any, Callable, Optional, Sequence

import torch
from torch._C import _distributed_c10d as c10d

from .._requests import Memory
from .._library import InvalidArgument
from .._kept_request import KeptRequest
from .._works import _Flight
from ._group_store import Parent, RollCall, meet, part_of
from ._group_tensors import Landing, Received
from ._group_work import DRIVE_NANOSECONDS, Completions, DoneWork, GroupWork, Health, Shared, Started

_NAMES = 256  # operations of a group that may be in flight; their names are used again, so that the plan knows them
_NO_TIMEOUT = datetime.timedelta(0)  # of torch: as long as the group allows
_ASKED = 16  # works of which get_error() hears, though nobody waits for them

Finish = Callable[[list[_Flight]], list[torch.Tensor]]


class GroupCore:
    """Ranks of torch.distributed over Ronde.

    Operations are called in the same order on all ranks of the group, as with every back end. An error reaches every
    rank, as ronde.Error, a RuntimeError. Any thread may call. Waiting holds no lock of the interpreter.
    """

    def _open(self, store: Any, rank: int, size: int, timeout: datetime.timedelta, name: str,
              parent: Optional[Parent]) -> None:
        self._rank, self._size = rank, size
        self._label = f"group {name}" if name else "group"
        self._timeout = timeout.total_seconds()
        ours = part_of(store, rank)
        if parent is None:
            self._engine = meet(ours, rank, size, timeout, self._label)
        else:
            self._engine = parent.engine.subset(parent.ranks, self._label, self._timeout)
        self._shared = Shared(self._engine, Completions(), Health(), RollCall(ours, rank, size))
        self._order = threading.Lock()  # an operation's number and its submission
        self._count = 0
        self._monitored = 0  # barriers over the store
        self._names = [f"{self._label}/{slot}" for slot in range(_NAMES)]
        self._slots: list[list[_Flight]] = [[] for _ in range(_NAMES)]
        self._latest: "collections.deque[weakref.ref[GroupWork]]" = collections.deque(maxlen=_ASKED)

    def parent_of(self, ranks: Sequence[int]) -> Optional[Parent]:
        """This group as the parent of one of these ranks of it; None where they have to meet by themselves: a process
        set has its ranks in ascending order."""
        return Parent(self._engine, ranks) if self._engine.is_open and list(ranks) == sorted(ranks) else None

    # ---- what torch asks ----

    def getBackendName(self) -> str:
        return "ronde"

    def _set_sequence_number_for_group(self) -> None:
        """Every group counts from 0."""

    def _get_sequence_number_for_group(self) -> int:
        return self._count

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """How long operations may take, from the next one on."""
        self._timeout = timeout.total_seconds()

    def get_error(self) -> Any:
        """Whether the group has failed, and by what: an operation that was not done in time, a rank that is gone, or
        the transport. Errors after which it goes on are not meant. An operation counts once it is over here."""
        for reference in list(self._latest):
            work = reference()
            if work is not None:
                work.exception()
        return getattr(c10d.ErrorType, self._shared.health.error)

    # ---- how it ends ----

    def shutdown(self) -> None:
        """Completes what is in flight and leaves the group; a second time it does nothing. Warns of a group that has
        failed, and of operations that failed and that nobody has waited for."""
        try:
            self._engine.close()
        except RuntimeError as error:
            warnings.warn(f"{self._label}: {error}", RuntimeWarning)
        self._let_go()

    def abort(self) -> None:
        """Fails what is in flight, by name and on all ranks, and leaves the group at once."""
        self._shared.health.fail("COMM_ERROR")
        self._shared.health.aborted = True
        # Without the lock, which a thread may hold that waits for one of them.
        flights = [flight for slot in list(self._slots) for flight in list(slot)]
        flights += [flight for flight in list(self._engine._in_flight) if flight not in flights]  # messages
        self._engine.give_up(flights)
        self._let_go()

    def _let_go(self) -> None:
        """Of what would live as long as this object, which somebody may still hold."""
        self._shared.completions.close()
        self._shared.roll_call.close()

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None and engine.is_open:
            self.shutdown()

    # ---- how an operation starts ----

    def _start(self, opts: Any, submit: Callable[..., Optional[Finish]], parts: int = 1) -> GroupWork:
        """submit(*names) starts an operation of so many parts with _part(), and returns what is left to do at its end.

        Where it raises, the other ranks must not wait for this one: what they do under these names meets a barrier.
        """
        seconds = self._seconds_of(opts)
        with self._order:
            slot = self._count % _NAMES
            self._count += 1
            self._wait_for_slot(slot)
            name = self._names[slot]
            names = [name] + [f"{name}.{i}" for i in range(1, parts)]
            self._slots[slot] = flights = []
            try:
                finish = submit(flights, *names)
                if not flights:
                    raise InvalidArgument("an operation of no tensors: give it at least one")
            except Exception as error:
                flights += self._engine._refuse(names[len(flights):], error)
                self._shared.health.note(error)
                raise
            number = self._count
        work = GroupWork(self._shared, number, flights, finish, seconds)
        work.drive()
        self._keep(work)
        return work

    def _seconds_of(self, opts: Any) -> float:
        timeout = getattr(opts, "timeout", _NO_TIMEOUT)
        return timeout.total_seconds() if timeout > _NO_TIMEOUT else self._timeout

    def _start_kept(self, opts: Any, kept: KeptRequest, tensor: torch.Tensor,
                    source: Optional[torch.Tensor] = None) -> Started:
        """_start() in fewer steps, of an operation on one tensor, in place or from another one, that has been found
        good."""
        with self._order:
            slot = self._count % _NAMES
            self._count += 1
            for flight in self._slots[slot]:
                if flight.pointer:
                    self._wait_for_slot(slot)
                    break
            name = self._names[slot]
            try:
                flight = kept.submit(self._engine, name, tensor.data_ptr(), (tensor, source),
                                     None if source is None else source.data_ptr())
            except Exception as error:
                self._slots[slot] = self._engine._refuse([name], error)
                self._shared.health.note(error)
                raise
            self._slots[slot] = [flight]
            number = self._count
        if flight.drive(DRIVE_NANOSECONDS, tensor.data_ptr() if kept.gathers else None):
            self._engine._in_flight.discard(flight)
            done = DoneWork([tensor])
            self._keep_alive(done)
            return done
        finish: Finish = lambda _: [tensor]
        if kept.gathers:  # the result is elsewhere where ranks have called something else that agrees with it
            finish = lambda done: Received(done[0]).into([Landing(tensor, load=False)])
        work = GroupWork(self._shared, number, [flight], finish, self._seconds_of(opts))
        self._keep(work)
        return work

    def _keep_alive(self, work: Started) -> None:
        """Where PyTorch may hold only the C++ half of works."""

    def _keep(self, work: GroupWork) -> None:
        self._latest.append(weakref.ref(work))
        self._keep_alive(work)

    def _wait_for_slot(self, slot: int) -> None:
        """Waits until the operation that had these names before is done, whatever became of it. After the group's
        timeout it is given up, which fails the group on all of its ranks."""
        until = time.monotonic() + self._timeout
        for flight in self._slots[slot]:
            if not flight.hear(until):
                flight.settle(0)
        self._engine._names_since_a_wait.clear()

    def _part(self, flights: list[_Flight], operation: str, name: str, source: Optional[Memory],
              target: Optional[Memory], **options: Any) -> None:
        flights.append(self._engine._submit(operation, [name], [source], [target], blocking=True, **options))
