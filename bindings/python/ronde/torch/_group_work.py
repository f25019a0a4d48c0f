# SPDX-License-Identifier: Apache-2.0
"""Works of a process group: torch.distributed's Work over an operation of the runtime, and the futures of those that
ask for one."""
from __future__ import annotations

import collections
import datetime
import re
import threading
import time
from typing import TYPE_CHECKING, Callable, NamedTuple, Optional, Union

import torch
from torch._C._distributed_c10d import Work as _TorchWork

from .._library import Error, Status
from .._works import Work, _Flight

if TYPE_CHECKING:
    from .._engine import Engine
    from ._group_store import RollCall

_NO_TIMEOUT = datetime.timedelta(0)  # of torch: as long as the group allows
DRIVE_NANOSECONDS = 400_000  # what it costs to leave an operation to other threads: the runtime's, and that of a future
_IDLE_SECONDS = 10.0  # then a thread that has nothing to wait for ends
_SOON_SECONDS = 0.25  # then the other ranks are told that this one waits

_FAILURES = {Status.DEADLINE: "TIMEOUT", Status.PEER_FAILED: "REMOTE_ERROR", Status.CLOSED: "COMM_ERROR",
             Status.TRANSPORT: "COMM_ERROR", Status.SYSTEM: "COMM_ERROR", Status.INTERNAL: "COMM_ERROR"}


class GroupWork(_TorchWork):
    """An operation of a process group. Any thread may wait and ask.

    DistributedDataParallel calls it from C++. There PyTorch 1.13 keeps its C++ half alone alive; its group keeps the
    other one.
    """

    def __init__(self, shared: "Shared", number: int, flights: list[_Flight],
                 finish: Callable[[list[_Flight]], list[torch.Tensor]], timeout: float) -> None:
        """number: that of the operation in its group, from 1."""
        super().__init__()
        self._shared = shared
        self._number = number
        self._name = flights[0].name
        self._timeout = timeout
        self._until = time.monotonic() + timeout
        self._lock = threading.Lock()
        self._work = Work(shared.engine, flights, finish)
        self._future: Optional[torch.futures.Future] = None
        self._asked: Optional[torch.futures.Future] = None

    def drive(self) -> None:
        """Moves the operation on in this thread, no longer than a change of threads takes: most are done by then."""
        try:
            self._work.wait(DRIVE_NANOSECONDS / 1e9)
        except Exception:  # that of the time, or the operation's own, of which wait() tells
            pass

    def wait(self, timeout: datetime.timedelta = _NO_TIMEOUT) -> bool:
        """Returns True when the operation is done; raises ronde.Error with what became of it, and after the timeout.

        After the group's own timeout the operation is given up: the group fails on all of its ranks, by name.
        """
        if self._work.succeeded:  # most operations, since drive()
            return True
        until = self._until if timeout <= _NO_TIMEOUT else min(self._until,
                                                               time.monotonic() + timeout.total_seconds())
        try:
            self._wait_until(until)
        except TimeoutError:
            if until < self._until:
                raise Error(f"'{self._name}' is not done after {timeout.total_seconds():g} s", Status.DEADLINE,
                            tensor=self._name) from None
            self._give_up()
        except Exception as error:
            self._shared.health.note(error)
            if self._shared.health.aborted and getattr(error, "status", None) in _FAILURES:
                raise Error(f"'{self._name}' was in flight when abort() was called on rank {self._shared.engine.rank}",
                            Status.CLOSED, tensor=self._name) from error
            raise
        return True

    def _wait_until(self, until: float) -> list[torch.Tensor]:
        """The result. Where it does not come soon, the other ranks can see that this one waits for it."""
        left = max(0.0, until - time.monotonic())
        soon = min(_SOON_SECONDS, self._timeout / 4)
        if left > soon:
            try:
                return self._work.wait(soon)
            except TimeoutError:
                self._shared.roll_call.say(self._number)
        return self._work.wait(max(0.0, until - time.monotonic()))

    def _give_up(self) -> None:
        absent, waited = self._absent(), time.monotonic() - self._until + self._timeout
        place = ""
        for flight in self._work._flights:
            flight.settle(0)
        try:
            self._shared.engine._meet(f"after {self._name}")
        except Error as error:  # what has failed the group
            found = re.search(r"submitted at ([^,]+:\d+)", str(error))
            place = f", called at {found[1]}," if found else ""
            if f"given up on rank {self._shared.engine.rank} " not in str(error):
                absent += f": {error}"
        error = Error(f"'{self._name}'{place} was not done on all ranks within the group's timeout of "
                      f"{self._timeout:g} s: after {waited:.1f} s {absent}. The group has failed on all of its ranks",
                      Status.DEADLINE, tensor=self._name)
        self._shared.health.note(error)
        if not any(flight.pointer for flight in self._work._flights):  # else another thread is about to give it up
            self._work.give_up(error)  # so that its future and the next wait say the same
        raise error

    def _absent(self) -> str:
        """Who has not come, for an error. Those who came a moment ago have had the time to say so, too."""
        missing = self._shared.roll_call.missing(self._number)
        if missing and self._shared.engine.size > 2:
            time.sleep(min(_SOON_SECONDS, self._timeout / 4))
            missing = self._shared.roll_call.missing(self._number)
        if missing is None:
            return "a rank has not called it, or is not done"
        if not missing:
            return "every rank had called it"
        ranks = "rank " + str(missing[0]) if len(missing) == 1 else "ranks " + ", ".join(map(str, missing))
        return f"{ranks} had not called it, or did not wait for it"

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
        self.wait()
        return self._work.wait(0)

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
                    self._shared.completions.put(self)
            return self._asked

    def publish(self) -> None:
        """Completes the future of a work that is done, which runs its callbacks."""
        future, self._future = self._future, None
        future.set_result(None)


class DoneWork(_TorchWork):
    """An operation that was done when its call returned, as most are that are waited for at once."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._tensors = tensors
        self._future: Optional[torch.futures.Future] = None

    def wait(self, timeout: datetime.timedelta = _NO_TIMEOUT) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None

    def result(self) -> list[torch.Tensor]:
        return self._tensors

    def synchronize(self) -> None:
        pass

    def block_current_stream(self) -> None:
        pass

    def get_future(self) -> torch.futures.Future:
        if self._future is None:
            future = torch.futures.Future()
            future.set_result(self._tensors)
            self._future = future
        return self._future


Started = Union[GroupWork, DoneWork]


class Health:
    """What has failed a group, by the names of PyTorch's ErrorType: the first such error."""

    def __init__(self) -> None:
        self.error = "SUCCESS"
        self.aborted = False

    def note(self, error: BaseException) -> None:
        """An error after which the group goes on changes nothing."""
        self.fail(_FAILURES.get(getattr(error, "status", Status.OK), "SUCCESS"))

    def fail(self, error: str) -> None:
        if self.error == "SUCCESS":
            self.error = error


class Completions:
    """Threads that complete futures. One of them waits for works at a time; another takes over before callbacks run,
    since those may wait for works themselves. They start when they are needed."""

    def __init__(self) -> None:
        self._works: "collections.deque[GroupWork]" = collections.deque()
        self._changed = threading.Condition()
        self._idle = 0
        self._somebody_waits = False
        self._closed = False

    def close(self) -> None:
        """Threads that have nothing to do end now, and the others when they have done it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

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

    def _may_take(self) -> bool:
        return bool(self._works) and not self._somebody_waits

    def _next(self) -> Optional[GroupWork]:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._may_take() or (self._closed and not self._works), _IDLE_SECONDS)
            self._idle -= 1
            if not self._may_take():
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


class Shared(NamedTuple):
    """What all works of a group need of it. None of it leads back to the group, which ends when nobody holds it."""

    engine: "Engine"
    completions: Completions
    health: Health
    roll_call: "RollCall"
