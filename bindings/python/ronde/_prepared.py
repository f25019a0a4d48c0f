# SPDX-License-Identifier: Apache-2.0
"""Operations that are agreed once and run again and again."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Optional

from ._engine import Engine
from ._library import LIBRARY, OPERATIONS, InvalidArgument, Status, call
from ._requests import Memory, Reduction, _requests, deadline_of


class Prepared:
    """What Engine.prepare_allreduce() and its like return, for arrays that stay where they are:

        loss = numpy.zeros(1, numpy.float32)
        total = engine.prepare_allreduce("loss", loss, ronde.Sum)
        for batch in batches:
            loss[0] = step(batch)
            total.run()

    Every rank runs it equally often. On one host ranks meet in shared memory where each moves at most 4,096 bytes: such
    a call has no name and asks no coordinator. It waits inside the library, so that a signal is handled when it ends.
    `timeout` is how many seconds each call may take: in shared memory one that takes longer ends the operation on all
    ranks, and the engine lives on. It belongs to one thread at a time, and keeps its arrays; when its engine has closed
    all calls raise."""

    def __init__(self, engine: Engine, operation: str, name: str, source: Optional[Memory], target: Optional[Memory],
                 result: Callable[[ctypes.c_void_p], Any], reduction: Reduction = Reduction(), root: int = 0,
                 timeout: Optional[float] = None) -> None:
        self._name, self._keep, self._result = name, (source, target), result
        self._pid = os.getpid()
        self._pointer = ctypes.c_void_p()
        requests = _requests([name], [source], [target], reduction, root)
        requests[0].deadline_ns = deadline_of(timeout)
        call(LIBRARY.ronde_prepare, engine._handle(), OPERATIONS[operation], requests, ctypes.byref(self._pointer),
             tensor=name)

    def start(self) -> None:
        """Begins a call, for which the array is read. The root of a broadcast may wait until all ranks have the one
        before the last."""
        self._call(LIBRARY.ronde_prepared_start)

    def wait(self) -> Any:
        """Waits for the end of the call that start() has begun, and returns the array of the result: of an allgather one
        that the next start() overwrites, otherwise the same in every call."""
        self._call(LIBRARY.ronde_prepared_wait)
        return self._result(self._pointer)

    def run(self) -> Any:
        """start() and wait()."""
        self._call(LIBRARY.ronde_prepared_run)
        return self._result(self._pointer)

    def _call(self, function: Any) -> None:
        if self._pid != os.getpid():
            raise InvalidArgument(f"'{self._name}' was prepared by the parent process: a forked child cannot run it",
                                  Status.UNSUPPORTED, tensor=self._name)
        call(function, self._pointer, tensor=self._name)

    def __del__(self) -> None:
        # What a forked child has is its parent's.
        if getattr(self, "_pointer", None) and self._pid == os.getpid():
            LIBRARY.ronde_prepared_release(self._pointer)
