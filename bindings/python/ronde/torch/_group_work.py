# SPDX-License-Identifier: Apache-2.0
"""Works of a process group: torch.distributed's Work over an operation of the runtime, and the futures of those that
ask for one."""
from __future__ import annotations

import collections
import datetime
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Optional

import torch
from torch._C._distributed_c10d import Work as _TorchWork

from .._library import Error, Status
from .._works import Work, _Flight

if TYPE_CHECKING:
    from .._engine import Engine

_NO_TIMEOUT = datetime.timedelta(0)  # of torch: as long as the group allows
_DRIVE_SECONDS = 0.0004  # what it costs to leave an operation to other threads: the runtime's, and that of a future
_IDLE_SECONDS = 10.0  # then a thread that has nothing to wait for ends


class GroupWork(_TorchWork):
    """An operation of a process group. Any thread may wait and ask.

    DistributedDataParallel calls it from C++. There PyTorch 1.13 keeps its C++ half alone alive; its group keeps the
    other one.
    """

    def __init__(self, engine: "Engine", flights: list[_Flight], finish: Callable[[list[_Flight]], list[torch.Tensor]],
                 timeout: float, completions: "Completions") -> None:
        super().__init__()
        self._engine = engine
        self._name = flights[0].name
        self._timeout = timeout
        self._until = time.monotonic() + timeout
        self._completions = completions
        self._lock = threading.Lock()
        self._work = Work(engine, flights, finish)
        self._future: Optional[torch.futures.Future] = None
        self._asked: Optional[torch.futures.Future] = None

    def drive(self) -> None:
        """Moves the operation on in this thread, no longer than a change of threads takes: most are done by then."""
        try:
            self._work.wait(_DRIVE_SECONDS)
        except Exception:  # that of the time, or the operation's own, of which wait() tells
            pass

    def wait(self, timeout: datetime.timedelta = _NO_TIMEOUT) -> bool:
        """Returns True when the operation is done; raises ronde.Error with what became of it, and after the timeout.

        After the group's own timeout the operation is given up: the group fails on all of its ranks, by name.
        """
        until = self._until if timeout <= _NO_TIMEOUT else min(self._until,
                                                               time.monotonic() + timeout.total_seconds())
        try:
            self._work.wait(max(0.0, until - time.monotonic()))
        except TimeoutError:
            if until < self._until:
                raise Error(f"'{self._name}' is not done after {timeout.total_seconds():g} s", Status.DEADLINE,
                            tensor=self._name) from None
            self._give_up()
        return True

    def _give_up(self) -> None:
        for flight in self._work._flights:
            flight.settle(0)
        why = ""
        try:
            self._engine._submit("barrier", [f"after {self._name}"], [None], [None])
        except Error as error:  # what has failed the group
            why = f": {error}"
        error = Error(f"'{self._name}' was not done on all ranks within the group's timeout of {self._timeout:g} s{why}",
                      Status.DEADLINE, tensor=self._name)
        if not any(flight.pointer for flight in self._work._flights):  # else another thread is about to give it up
            self._work.give_up(error)  # so that its future and the next wait say the same
        raise error

    def is_completed(self) -> bool:
        """Whether it is done, successfully or not; then results are where they belong. Never blocks."""
        if not self._work.poll():
            return False
        self._outcome()
        return True

    def _outcome(self) -> Optional[BaseException]:
        """What became of an operation that is done."""
        try:
            self.wait()
        except Exception as error:
            return error
        return None

    def is_success(self) -> bool:
        return self._work.poll() and self._outcome() is None

    def exception(self) -> Optional[BaseException]:
        return self._outcome() if self._work.poll() else None

    def result(self) -> list[torch.Tensor]:
        """The tensors that hold the result; waits for them."""
        return self._work.wait(max(0.0, self._until - time.monotonic()))

    def synchronize(self) -> None:
        self.wait()

    def block_current_stream(self) -> None:
        self.wait()

    def get_future(self) -> torch.futures.Future:
        """A future of the tensors that hold the result. A thread of the group completes it and runs its
        callbacks; where the operation is done by now, the caller's does."""
        with self._lock:
            if self._asked is None:
                self._future = torch.futures.Future()
                # An error must reach those who wait in C++, too, and only a callback can put it there.
                self._asked = self._future.then(lambda _: self.result())
                if self._work.poll():
                    self.publish()
                else:
                    self._completions.put(self)
            return self._asked

    def publish(self) -> None:
        """Completes the future of a work that is done, which runs its callbacks."""
        future, self._future = self._future, None
        future.set_result(None)


class Completions:
    """Threads that complete futures. One of them waits for works at a time; another takes over before callbacks run,
    since those may wait for works themselves. They start when they are needed."""

    def __init__(self) -> None:
        self._works: "collections.deque[GroupWork]" = collections.deque()
        self._changed = threading.Condition()
        self._idle = 0
        self._somebody_waits = False

    def put(self, work: GroupWork) -> None:
        with self._changed:
            self._works.append(work)
            self._find_somebody()

    def _find_somebody(self) -> None:
        if not self._works or self._somebody_waits:
            return
        if self._idle > 0:
            self._changed.notify()
        else:
            threading.Thread(target=self._run, name="ronde futures", daemon=True).start()

    def _next(self) -> Optional[GroupWork]:
        with self._changed:
            self._idle += 1
            found = self._changed.wait_for(lambda: self._works and not self._somebody_waits, _IDLE_SECONDS)
            self._idle -= 1
            if not found:
                return None
            self._somebody_waits = True
            return self._works.popleft()

    def _run(self) -> None:
        while True:
            work = self._next()
            if work is None:
                return
            work._outcome()
            with self._changed:
                self._somebody_waits = False
                self._find_somebody()
            work.publish()
            del work
