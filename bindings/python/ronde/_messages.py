# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks over the C ABI."""
from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

from ._library import LIBRARY, Message, call
from ._requests import _place
from ._works import _Flight

if TYPE_CHECKING:
    from ._engine import Engine
    from ._requests import Memory

ANY_RANK = -1


def _blank_message() -> bytes:
    message = Message()
    LIBRARY.ronde_message_init_sized(ctypes.byref(message), ctypes.sizeof(message))
    return bytes(message)


_BLANK = _blank_message()


def send(engine: "Engine", rank: int, tag: int, memory: "Memory", name: str, deadline: float = 0.0) -> _Flight:
    """Begins to send it. `name` is for errors. deadline: so many seconds from now on it has gone, or the job fails; 0:
    RONDE_STALL_FAILURE_SECONDS."""
    return _begin(engine, LIBRARY.ronde_send_async, rank, tag, memory, name, deadline)


def receive(engine: "Engine", rank: int, tag: int, memory: "Memory", name: str, deadline: float = 0.0) -> _Flight:
    """Begins to receive it, from ANY_RANK, too. deadline: as in send()."""
    return _begin(engine, LIBRARY.ronde_recv_async, rank, tag, memory, name, deadline)


def source_of(flight: _Flight) -> int:
    """The rank that has sent what was received; of a flight that is done, and not released yet."""
    source = ctypes.c_int32()
    call(LIBRARY.ronde_work_source, flight.pointer, ctypes.byref(source), tensor=flight.name)
    return source.value


def _begin(engine: "Engine", function: Any, rank: int, tag: int, memory: "Memory", name: str,
           deadline: float) -> _Flight:
    message = Message.from_buffer_copy(_BLANK)
    message.rank, message.tag = rank, tag
    message.data, message.count, message.dtype = memory.address, math.prod(memory.shape), memory.dtype
    message.device = memory.device
    message.deadline_ns = int(deadline * 1e9)
    message.file, message.line = _place()
    if engine._dropped:
        engine._release_dropped()
    work = ctypes.c_void_p()
    with engine._lock:
        call(function, engine._handle(), ctypes.byref(message), ctypes.byref(work), tensor=name)
        flight = _Flight(engine, work, name, [memory])
        engine._in_flight.add(flight)
    return flight
