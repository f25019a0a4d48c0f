# SPDX-License-Identifier: Apache-2.0
"""Engines over the C ABI, for memory of any framework: what is submitted, and how a job ends."""
from __future__ import annotations

import atexit
import collections
import ctypes
import functools
import os
import sys
import threading
from typing import Any, Optional, Sequence

from ._engine_timeline import EngineTimeline, late_of
from ._library import (GROUPED_OPERATIONS, LIBRARY, EngineOptions, Error, InvalidArgument, Statistics, Status, call)
from ._local_job import LocalJob
from ._requests import Memory, Reduction, _place, _requests, deadline_of
from ._store import Store, StoreFunctions
from ._works import _Flight

@functools.lru_cache(maxsize=None)
def _function(operation: str) -> Any:
    return getattr(LIBRARY, f"ronde_{operation}_async")


def _copy_environment() -> None:
    """What an engine has changed in the environment, which os.environ, a copy, does not see: the mark by which children
    know whose children they are, and the secret that is gone."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype, getenv.argtypes = ctypes.c_char_p, [ctypes.c_char_p]
    mark = getenv(b"RONDE_RANK_PROCESS")
    if mark is not None:
        os.environ["RONDE_RANK_PROCESS"] = mark.decode()
    if getenv(b"RONDE_JOB_SECRET") is None:
        os.environ.pop("RONDE_JOB_SECRET", None)


class Engine(EngineTimeline):
    """A rank's part of the runtime, without its operations: ronde.Engine and ronde.torch add those. One that is neither
    closed nor used any more stays open until the program ends."""

    def __init__(self, job: Optional[LocalJob] = None, rank: int = 0, *, size: int = 0,
                 store: Optional[Store] = None, name: str = "") -> None:
        """Joins a job and waits until every rank has, at most RONDE_START_TIMEOUT_SECONDS: that of MPI's mpirun, of
        torchrun or whatever else has started the process; rank `rank` of a LocalJob; or, where the program says so
        itself, rank `rank` of `size` that meet over a store. The engines of a process are opened in one order on all
        ranks, or have each a `name`."""
        options = EngineOptions()
        LIBRARY.ronde_engine_options_init_sized(ctypes.byref(options), ctypes.sizeof(options))
        if job is not None:
            options.local_job = job._pointer
            options.local_job_rank = rank
        else:
            options.rank, options.size = rank, size
        options.name = name.encode()
        functions = None if store is None else StoreFunctions(store)
        if functions is not None:
            options.store = ctypes.pointer(functions.table)
        pointer = ctypes.c_void_p()
        try:
            call(LIBRARY.ronde_engine_open, ctypes.byref(options), ctypes.byref(pointer))
        except Error as error:
            if functions is not None and functions.raised is not None:
                raise functions.raised from error
            raise
        finally:
            if functions is not None:
                functions.release()
        _copy_environment()
        self._begin(pointer)

    def _begin(self, pointer: ctypes.c_void_p) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()  # submissions against close()
        self._in_flight: set[_Flight] = set()
        self._dropped: list[_Flight] = []  # in flight, and nobody will ask for the result
        self._names_since_a_wait: set[str] = set()
        self._refused: "collections.deque[_Flight]" = collections.deque(maxlen=256)  # what _refuse() has submitted
        self._pointer: Optional[ctypes.c_void_p] = pointer
        self._rank = LIBRARY.ronde_rank(pointer)
        self._size = LIBRARY.ronde_size(pointer)
        self._local_rank = LIBRARY.ronde_local_rank(pointer)
        self._local_size = LIBRARY.ronde_local_size(pointer)
        _engines.add(self)

    @property
    def rank(self) -> int:
        """This rank in the job, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """The number of ranks of the job."""
        return self._size

    @property
    def local_rank(self) -> int:
        """This rank among those of its host, from 0."""
        return self._local_rank

    @property
    def local_size(self) -> int:
        """The number of ranks on this host."""
        return self._local_size

    @property
    def is_open(self) -> bool:
        """Whether operations are possible: neither closed, nor another process's, as in a forked child."""
        return self._pointer is not None and self._pid == os.getpid()

    def subset(self, ranks: Sequence[int], name: str, timeout: Optional[float] = None):
        """An engine of some of the ranks, numbered anew in ascending order: a process set, which makes progress by
        itself, and whose operations have names of their own. Each of these ranks calls it and waits for the others, so
        many seconds at most; without a timeout RONDE_STALL_FAILURE_SECONDS. On another rank it returns at once, an
        engine of size 0 that refuses every operation."""
        deadline = deadline_of(timeout)
        numbers = [int(rank) for rank in ranks]
        file, line = _place()
        pointer = ctypes.c_void_p()
        call(LIBRARY.ronde_engine_subset, self._handle(), (ctypes.c_int32 * max(1, len(numbers)))(*numbers),
             len(numbers), name.encode(), deadline, file, line, ctypes.byref(pointer))
        return self._of_set(pointer)

    def split(self, color: int, name: str):
        """Every rank calls it: those of one color get the process set "<name>.<color>", and those of a color below 0 an
        engine of size 0."""
        file, line = _place()
        pointer = ctypes.c_void_p()
        call(LIBRARY.ronde_engine_split, self._handle(), color, name.encode(), file, line, ctypes.byref(pointer))
        return self._of_set(pointer)

    def _of_set(self, pointer: ctypes.c_void_p):
        engine = type(self).__new__(type(self))
        engine._begin(pointer)
        return engine

    def describe(self) -> str:
        """The table of ranks for people: where each of them runs, and what it talks to over which transport."""
        text = ctypes.c_char_p()
        with self._lock:
            call(LIBRARY.ronde_engine_describe, self._handle(), ctypes.byref(text))
            return (text.value or b"").decode(errors="replace")

    def statistics(self) -> dict[str, Any]:
        """What this rank has done since it opened: the fields of ronde_statistics, and under "late", on rank 0, who was
        late with what, the worst first: the fields of ronde_late."""
        statistics = Statistics()
        LIBRARY.ronde_statistics_init_sized(ctypes.byref(statistics), ctypes.sizeof(statistics))
        with self._lock:
            call(LIBRARY.ronde_engine_statistics, self._handle(), ctypes.byref(statistics))
            late = late_of(self._handle())
        return {**{name: getattr(statistics, name) for name, _ in Statistics._fields_[1:]}, "late": late}

    def close(self) -> None:
        """Completes what can be completed within RONDE_SHUTDOWN_TIMEOUT_SECONDS, fails the rest and leaves the job.

        Raises Error if an operation failed that nobody has waited for. A second time it does nothing.
        """
        for flight in list(self._refused):
            flight.hear(0)
        with self._lock:
            pointer, self._pointer = self._pointer, None
        if pointer is None:
            return
        _engines.discard(self)
        try:
            call(LIBRARY.ronde_engine_close, pointer)
        finally:
            self._release_dropped()
            # A list: a wait that ends in another thread takes its flight out of the set.
            _stuck.extend(flight for flight in list(self._in_flight) if not flight.poll())

    def abandon(self) -> None:
        """close() for a program that an exception ends: what other ranks may never join is given up after
        RONDE_UNWIND_GRACE_SECONDS, on all ranks, with the name of the tensor and its place."""
        for flight in list(self._in_flight):
            flight.settle()
        self._in_flight.clear()
        try:
            self.close()
        except RuntimeError:
            pass  # the exception that is under way says more

    def give_up(self, flights: Sequence[_Flight]) -> None:
        """Closes the engine now. Where any of these are still in flight, they fail on all ranks, by name."""
        pending = [flight for flight in flights if not flight.poll()]
        for flight in pending:
            flight.settle(0)
        if any(flight.pointer for flight in pending):  # threads wait for them, and have their locks
            try:
                self._meet(f"abort on rank {self._rank}").settle(0)
            except RuntimeError:
                pass  # it has failed already
        self.abandon()

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _handle(self) -> ctypes.c_void_p:
        if self._pointer is None:
            raise InvalidArgument("this engine has been closed: open another one, or call init() again",
                                  Status.CLOSED)
        return self._pointer

    def _submit(self, operation: str, names: Sequence[str], inputs: Sequence[Optional[Memory]],
                outputs: Sequence[Optional[Memory]], reduction: Reduction = Reduction(), *, root: int = 0,
                splits: Optional[Sequence[int]] = None, priority: int = 0, blocking: bool = False,
                remark: str = "") -> _Flight:
        """Submits one operation, or a group: names, inputs and outputs of its tensors. Either memory may be None.
        In errors the remark stands before the place of the call."""
        requests = _requests(names, inputs, outputs, reduction, root, splits, priority, blocking, remark)
        if self._dropped:
            self._release_dropped()
        twice = self._names_since_a_wait.intersection(names)
        if twice:  # the library would refuse it, too, unless the first happens to be over already
            name = min(twice)
            raise InvalidArgument(f"'{name}' is in flight already: wait for it before it is submitted again",
                                  Status.DUPLICATE_NAME, tensor=name)
        work = ctypes.c_void_p()
        count = [len(names)] if operation in GROUPED_OPERATIONS else []
        try:
            with self._lock:
                call(_function(operation), self._handle(), requests, *count, ctypes.byref(work),
                     tensor=names[0])
                flight = _Flight(self, work, names[0], [names, inputs, outputs])
                self._in_flight.add(flight)
                self._names_since_a_wait.update(names)
        except Error as error:  # as for a tensor of a device that this rank has not, or another rank only
            if any(one.device >= 0 for one in requests) and error.status in (Status.INVALID_ARGUMENT,
                                                                             Status.UNSUPPORTED):
                self._refuse([f"group of {names[0]}"] if count else names, error)
            raise
        return flight

    def _meet(self, name: str, **options: Any) -> _Flight:
        """Submits a barrier: options as of _submit()."""
        return self._submit("barrier", [name], [None], [None], **options)

    def _join(self) -> _Flight:
        """Submits this rank's join."""
        work = ctypes.c_void_p()
        with self._lock:
            call(LIBRARY.ronde_join_async, self._handle(), ctypes.byref(work), tensor="join")
            flight = _Flight(self, work, "join", [])
            self._in_flight.add(flight)
        return flight

    def _refuse(self, names: Sequence[str], error: Exception) -> list[_Flight]:
        """This rank cannot take part in operations of these names: the other ranks, which must not wait for it, meet a
        barrier under each, and hear why."""
        flights: list[_Flight] = []
        for name in names:
            try:
                flights.append(self._meet(name, remark=f"a call that was refused ({error})"))
            except RuntimeError:
                pass  # the name is in flight, or the job has failed or is closed, of which the others hear
        self._names_since_a_wait.difference_update(names)
        self._refused.extend(flights)
        return flights

    def _landed(self, flights: Sequence[_Flight]) -> None:
        self._names_since_a_wait.clear()
        for flight in flights:
            self._in_flight.discard(flight)
            flight.keep = []
            if not flight.owned:
                flight.release()

    def _release_dropped(self) -> None:
        """Lets go of the memory of works that nobody waits for, once they are done."""
        dropped, self._dropped = self._dropped, []
        for flight in dropped:
            if flight.pid != os.getpid() or flight.poll():
                self._in_flight.discard(flight)
                flight.release()
            else:
                self._dropped.append(flight)


_engines: set[Engine] = set()  # that are open: an engine that is dropped may still work on its arrays
_stuck: list[_Flight] = []  # of closed engines, should a transport not let go of their memory


def _close_all() -> None:
    """At exit. The library would do it too, but only after the arrays of what is in flight may have gone."""
    for engine in list(_engines):
        if not engine.is_open:
            continue
        if getattr(sys, "last_value", None) is not None:  # an exception ends the program
            engine.abandon()
            continue
        try:
            engine.close()
        except RuntimeError as error:
            print(f"ronde: {error}", file=sys.stderr)


def _forked() -> None:
    """In the child: the parent's threads, which may have held locks, are not here."""
    for engine in list(_engines):
        engine._lock = threading.Lock()
        for flight in list(engine._in_flight):
            flight.lock = threading.Lock()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forked)
