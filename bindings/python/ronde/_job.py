# SPDX-License-Identifier: Apache-2.0
"""The one job of a process that init() joins, as in Horovod, and the names of operations that were given none."""
from __future__ import annotations

import collections
import os
import threading
from typing import Any, Callable, Iterable, NamedTuple, Optional, Sequence, Union

import numpy

from ._library import InvalidArgument, Op
from ._numpy import Engine


class _Hosts(NamedTuple):
    """Where this rank's host stands among the hosts that have a rank with its local rank."""

    cross_rank: int
    cross_size: int
    homogeneous: bool


class _Job:
    def __init__(self) -> None:
        self.engine: Optional[Engine] = None
        self.hosts = _Hosts(0, 1, True)
        self.lock = threading.Lock()
        self.unnamed: "collections.Counter[str]" = collections.Counter()
        self.add_sets: Callable[[Any], None] = lambda process_sets: None


_job = _Job()


def _forked() -> None:
    """In the child: the thread that held the lock, if one did, is not here."""
    _job.lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def add_at_start(add_sets: Callable[[Any], None]) -> None:
    """What init() calls with the process sets that it was given."""
    _job.add_sets = add_sets


def init(comm: Any = None, process_sets: Any = None) -> None:
    """Joins the MPI job, starting MPI if the program has not; alone it is a job of one. Waits until every rank has
    called it, at most RONDE_START_TIMEOUT_SECONDS. A second call does nothing until shutdown().

    comm: Horovod's parameter, which Ronde lacks: leave it out. process_sets: a list of ProcessSet, the same on all
    ranks, that add_process_set() would take; or "dynamic", which changes nothing.
    """
    if comm:
        raise NotImplementedError("init(comm): sub-communicators. Ronde's job has all ranks; leave comm out")
    with _job.lock:
        if _job.engine is not None and _job.engine.is_open:
            return
        engine = Engine()
        _job.hosts = _find_hosts(engine)
        _job.unnamed.clear()
        _job.engine = engine
    if process_sets:
        _job.add_sets(process_sets)


def _find_hosts(engine: Engine) -> _Hosts:
    everybody = numpy.zeros((engine.size, 2), dtype=numpy.int64)
    everybody[engine.rank] = engine.local_rank, engine.local_size
    engine.allreduce("ronde.hosts", everybody, Op.SUM).wait()
    same = numpy.flatnonzero(everybody[:, 0] == engine.local_rank)
    return _Hosts(int(numpy.searchsorted(same, engine.rank)), len(same), len(set(everybody[:, 1])) == 1)


def shutdown() -> None:
    """Completes what is in flight and leaves the job. Raises Error if an operation failed that nobody waited for."""
    with _job.lock:
        engine, _job.engine = _job.engine, None
    if engine is not None and engine.is_open:
        engine.close()


def is_initialized() -> bool:
    """Whether init() was called, and neither shutdown() since then nor is this a forked child."""
    return _job.engine is not None and _job.engine.is_open


def current_engine() -> Engine:
    """The engine of init(); raises InvalidArgument, which is a ValueError, without it."""
    engine = _job.engine
    if engine is None:
        raise InvalidArgument("Ronde has not been initialized: call init() first")
    return engine


def empty(shape: Union[int, Sequence[int]], dtype: Any = numpy.float32) -> numpy.ndarray:
    """A new array without values in memory that the ranks of this host share: an allreduce in place of such an array
    on every rank is done where it lies. Where that memory has no room it is ordinary memory, which is said once, at
    info. Drop it, and all views of it, only when no work on it is in flight."""
    return current_engine().empty(shape, dtype)


def name_in(unnamed: "Optional[collections.Counter[str]]", operation: str, name: Optional[str]) -> str:
    """The name that the ranks agree on: unnamed operations are numbered, so that every rank calls them in one order.
    unnamed: the numbers of a process set; None: those of the job."""
    if name is not None:
        return f"{operation}.{name}"
    with _job.lock:
        numbers = _job.unnamed if unnamed is None else unnamed
        numbers[operation] += 1
        return f"{operation}.noname.{numbers[operation]}"


def numbers() -> dict[str, int]:
    """How many operations without a name there were of each kind."""
    with _job.lock:
        return dict(_job.unnamed)


def number_from(others: Iterable[dict[str, int]]) -> None:
    """After a join, where ranks have called other numbers of operations: those without a name go on from one number."""
    with _job.lock:
        for one in others:
            _job.unnamed |= collections.Counter(one)  # the higher of both


def rank() -> int:
    """This rank in the job, from 0."""
    return current_engine().rank


def size() -> int:
    """The number of ranks of the job."""
    return current_engine().size


def local_rank() -> int:
    """This rank among those of its host, from 0."""
    return current_engine().local_rank


def local_size() -> int:
    """The number of ranks on this host."""
    return current_engine().local_size


def cross_rank() -> int:
    """This rank among the ranks with its local rank, one on each host, from 0."""
    current_engine()
    return _job.hosts.cross_rank


def cross_size() -> int:
    """The number of ranks with this local rank: the hosts that have so many ranks."""
    current_engine()
    return _job.hosts.cross_size


def is_homogeneous() -> bool:
    """Whether every host has as many ranks."""
    current_engine()
    return _job.hosts.homogeneous
