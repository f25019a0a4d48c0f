# SPDX-License-Identifier: Apache-2.0
"""What Horovod has and Ronde's runtime lacks, by name."""
from __future__ import annotations

from typing import Any, Optional, Sequence


class ProcessSet:
    """A subset of ranks. Ronde has none yet but that of all ranks, global_process_set."""

    process_set_id: Optional[int] = None

    def __init__(self, ranks: Sequence[int] = ()) -> None:
        raise NotImplementedError("ProcessSet: Ronde has no process sets yet; only global_process_set")


class _Everybody(ProcessSet):
    process_set_id = 0

    def __init__(self) -> None:
        pass

    @property
    def ranks(self) -> list[int]:
        """All ranks of the job."""
        return list(range(self.size()))

    def size(self) -> int:
        """The number of ranks of the job."""
        from ._job import size
        return size()

    def rank(self) -> int:
        """This rank in the job."""
        from ._job import rank
        return rank()

    def included(self) -> bool:
        """True: every rank is in it."""
        return True

    def __repr__(self) -> str:
        return "ronde.global_process_set"


global_process_set = _Everybody()


def require_everybody(process_set: Any) -> None:
    """Raises NotImplementedError for anything but global_process_set."""
    if process_set is not global_process_set:
        raise NotImplementedError("process sets: Ronde has none yet; leave process_set out")


def add_process_set(process_set: Any) -> ProcessSet:
    """Not there yet: raises NotImplementedError."""
    raise NotImplementedError("add_process_set(): Ronde has no process sets yet")


def remove_process_set(process_set: Any) -> bool:
    """Not there yet: raises NotImplementedError."""
    raise NotImplementedError("remove_process_set(): Ronde has no process sets yet")


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Not there yet: raises NotImplementedError."""
    raise NotImplementedError("start_timeline(): Ronde has no timeline yet; see Engine.statistics()")


def stop_timeline() -> None:
    """Not there yet: raises NotImplementedError."""
    raise NotImplementedError("stop_timeline(): Ronde has no timeline yet")


def elastic_attribute(module: str, name: str) -> Any:
    """For a module's __getattr__: Horovod's elastic training is not there, other names are unknown."""
    if name == "elastic":
        raise NotImplementedError(f"{module}.{name}: Ronde has no elastic training; start the job again with "
                                  "ronderun --restarts")
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
