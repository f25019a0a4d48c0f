# SPDX-License-Identifier: Apache-2.0
"""Subsets of the ranks of init(), which reduce among themselves: Horovod's process sets."""
from __future__ import annotations

import collections
import threading
from typing import Any, Optional, Sequence, Union

from ._job import add_at_start, current_engine, name_in
from ._job import rank as rank_in_job
from ._job import size as size_of_job
from ._library import InvalidArgument
from ._numpy import Engine


class ProcessSet:
    """Some of the ranks, in the numbers of the job. It is of use once init() or add_process_set() has taken it."""

    process_set_id: Optional[int] = None

    def __init__(self, ranks: Sequence[int]) -> None:
        if hasattr(ranks, "Get_rank") or hasattr(ranks, "Get_group"):
            raise NotImplementedError("ProcessSet(mpi_comm): Ronde's process sets are lists of ranks; give the ranks of "
                                      "the communicator")
        try:
            self._ranks = sorted(int(one) for one in ranks)
        except TypeError:
            raise InvalidArgument(f"ProcessSet() takes a list of ranks, and not a {type(ranks).__name__}") from None
        self._engine: Optional[Engine] = None
        self._unnamed: "collections.Counter[str]" = collections.Counter()

    @property
    def ranks(self) -> list[int]:
        """The ranks of the job that are in it, ascending."""
        return list(self._ranks)

    def size(self) -> Optional[int]:
        """How many ranks it has; None where it has not been added."""
        return None if self.process_set_id is None else len(self._ranks)

    def rank(self) -> Optional[int]:
        """This rank in it, from 0; None where it has not been added, or this rank is not in it."""
        return self._ranks.index(rank_in_job()) if self.included() else None

    def included(self) -> Optional[bool]:
        """Whether this rank is in it; None where it has not been added."""
        return None if self.process_set_id is None else rank_in_job() in self._ranks

    def __repr__(self) -> str:
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self._ranks})"


class _Everybody(ProcessSet):
    process_set_id = 0

    def __init__(self) -> None:
        super().__init__(())

    @property
    def ranks(self) -> list[int]:
        """All ranks of the job."""
        return list(range(size_of_job()))

    def size(self) -> int:
        """The number of ranks of the job."""
        return size_of_job()

    def rank(self) -> int:
        """This rank in the job."""
        return rank_in_job()

    def included(self) -> bool:
        """True: every rank is in it."""
        return True

    def __repr__(self) -> str:
        return "ronde.global_process_set"


global_process_set = _Everybody()


class _Added:
    """The sets of the job that init() has joined."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.engine: Optional[Engine] = None  # whose sets these are
        self.sets: dict[int, ProcessSet] = {}
        self.last = 0

    def of(self, engine: Engine) -> dict[int, ProcessSet]:
        if self.engine is not engine:
            for one in self.sets.values():
                one.process_set_id, one._engine = None, None
            self.engine, self.sets, self.last = engine, {}, 0
        return self.sets


_added = _Added()


def add_process_set(process_set: Union[ProcessSet, Sequence[int]]) -> ProcessSet:
    """Opens a process set, and returns it: a ProcessSet, or a list of ranks, of which one is made. Every rank calls it,
    in one order for all sets; those of the set wait for each other."""
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    engine = current_engine()
    with _added.lock:
        sets = _added.of(engine)
        if process_set.process_set_id is not None:
            raise InvalidArgument(f"{process_set} has been added already")
        same = [one for one in sets.values() if one.ranks == process_set.ranks]
        if same or process_set.ranks == list(range(engine.size)):
            raise InvalidArgument(f"a process set of ranks {process_set.ranks} is there already: "
                                  f"{same[0] if same else global_process_set}")
        _added.last += 1
        number = _added.last
    process_set._engine = engine.subset(process_set.ranks, f"process set {number}")
    process_set._unnamed.clear()
    process_set.process_set_id = number
    sets[number] = process_set
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Closes a process set; every rank calls it. False where it cannot be removed: it has not been added, or is that of
    all ranks."""
    with _added.lock:
        sets = _added.of(current_engine())
        if process_set is global_process_set or sets.pop(process_set.process_set_id or 0, None) is None:
            return False
        engine, process_set._engine, process_set.process_set_id = process_set._engine, None, None
    if engine is not None:
        engine.close()
    return True


def _add_all(process_sets: Any) -> None:
    """What init() was given."""
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise InvalidArgument(f"init(process_sets='{process_sets}'): a list of sets, or 'dynamic'")
        return
    for one in process_sets:
        if one is not global_process_set:
            add_process_set(one)


add_at_start(_add_all)


def engine_of(process_set: ProcessSet) -> Engine:
    """The engine that runs the operations of a set; raises InvalidArgument, which is a ValueError, on a rank that has
    none."""
    engine = current_engine()
    if process_set is global_process_set:
        return engine
    if not isinstance(process_set, ProcessSet):
        raise InvalidArgument(f"process_set is a ProcessSet, and not a {type(process_set).__name__}")
    if process_set._engine is None or _added.engine is not engine:
        raise InvalidArgument(f"{process_set} has not been added: call add_process_set() first")
    if not process_set.included():
        raise InvalidArgument(f"rank {engine.rank} is not in {process_set}, and takes no part in its operations")
    return process_set._engine


def name_of(operation: str, name: Optional[str], process_set: ProcessSet = global_process_set) -> str:
    """The name that the ranks agree on. Unnamed operations are numbered, in each set by itself."""
    return name_in(None if process_set is global_process_set else process_set._unnamed, operation, name)


def rank_in(process_set: ProcessSet, rank: int) -> int:
    """Which rank of the set is this rank of the job."""
    if process_set is global_process_set:
        return int(rank)
    try:
        return process_set.ranks.index(rank)
    except ValueError:
        raise InvalidArgument(f"rank {rank} is not in {process_set}: name one of its ranks") from None


def takes_part(process_set: ProcessSet) -> bool:
    """Whether operations of this set concern this rank."""
    return engine_of(process_set).size > 1 if process_set.included() else False

