# SPDX-License-Identifier: Apache-2.0
"""The timeline of an engine over the C ABI, the marks of the program in it, and which ranks the others wait for."""
from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from typing import Any, Iterator, Union

from ._library import LIBRARY, Late, call

_MARK_INSTANT, _MARK_BEGIN, _MARK_END = 0, 1, 2


def late_of(engine: ctypes.c_void_p) -> list[dict[str, Any]]:
    """Who was late with what, the worst first: the fields of ronde_late."""
    count = ctypes.c_size_t(0)
    rows = (Late * 0)()
    while True:
        call(LIBRARY.ronde_engine_late, engine, rows, len(rows), ctypes.byref(count))
        if count.value <= len(rows):
            break
        rows = (Late * count.value)()
    fields = [name for name, _ in Late._fields_ if name not in ("tensor", "reserved")]
    return [{"tensor": row.tensor.decode(errors="replace"), **{name: getattr(row, name) for name in fields}}
            for row in rows[:count.value]]


class EngineTimeline:
    """What an engine has of its timeline; the engine has the lock and the handle."""

    _lock: threading.Lock

    def _handle(self) -> ctypes.c_void_p:
        raise NotImplementedError

    def start_timeline(self, path: Union[str, "os.PathLike[str]"], mark_cycles: bool = False) -> None:
        """Writes what this rank does from now on into a trace file that the ranks of a host share: ronde.start_timeline()."""
        with self._lock:
            call(LIBRARY.ronde_engine_start_timeline, self._handle(), os.fsencode(path), int(mark_cycles))

    def stop_timeline(self) -> None:
        """Writes the rest and ends the timeline. Raises Error if the file could not be written."""
        with self._lock:
            call(LIBRARY.ronde_engine_stop_timeline, self._handle())

    def mark(self, name: str) -> None:
        """Marks this moment in the timeline, if there is one."""
        self._mark(_MARK_INSTANT, name)

    @contextlib.contextmanager
    def marked(self, name: str) -> Iterator[None]:
        """Marks how long something takes: `with engine.marked("forward"): ...`"""
        self._mark(_MARK_BEGIN, name)
        try:
            yield
        finally:
            self._mark(_MARK_END, name)

    def _mark(self, mark: int, name: str) -> None:
        with self._lock:
            call(LIBRARY.ronde_engine_mark, self._handle(), mark, name.encode())
