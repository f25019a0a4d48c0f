# SPDX-License-Identifier: Apache-2.0
"""Operations that are submitted again and again: the request is kept, and only what differs is written."""
from __future__ import annotations

import ctypes
from typing import Any, Optional, Sequence

from . import _requests
from ._engine import Engine, _function
from ._library import Request, call
from ._requests import Memory, Reduction
from ._works import _Flight


class KeptRequest:
    """An operation on one tensor, in place or into memory of the caller, for all tensors of a shape and type. Its callers
    take turns."""

    def __init__(self, operation: str, memory: Memory, reduction: Reduction = Reduction(),
                 splits: Optional[Sequence[int]] = None, gathers: bool = False) -> None:
        """The memory is that of one such tensor. gathers: the result may lie elsewhere than was asked."""
        self._submit = _function(operation)
        self.gathers = gathers
        self._request = request = Request.from_buffer_copy(_requests._BLANK)
        if memory.shape:
            request.shape = _requests._shape(memory.shape)
        request.dimensions = len(memory.shape)
        request.dtype = memory.dtype
        request.op, request.prescale, request.postscale, request.compression, _ = reduction
        if splits is not None:
            request.splits, request.split_count = (ctypes.c_int64 * len(splits))(*splits), len(splits)

    def submit(self, engine: Engine, name: str, address: int, owner: Any, source: Optional[int] = None) -> _Flight:
        """As Engine._submit() does, for a caller who knows that the name is not in flight, and who will wait."""
        request, step = self._request, _requests.STEP.get()
        request.name = name.encode()
        request.input, request.output = source, address
        request.file, request.line = _requests._place()
        request.flags = _requests._WILL_WAIT | (_requests._STEP_AGREES if step.agrees else 0)
        request.step = step.number
        if engine._dropped:
            engine._release_dropped()
        work = ctypes.c_void_p()
        with engine._lock:
            call(self._submit, engine._handle(), ctypes.byref(request), ctypes.byref(work), tensor=name)
            flight = _Flight(engine, work, name, [owner])
            engine._in_flight.add(flight)
        return flight
