# SPDX-License-Identifier: Apache-2.0
"""What is submitted, as the C ABI has it: memory, how it is reduced, the step, and the place in the program."""
from __future__ import annotations

import contextvars
import ctypes
import functools
import os
import sys
from types import FrameType
from typing import Any, NamedTuple, Optional, Sequence

from ._library import LIBRARY, Op, Request

_WILL_WAIT, _STEP_AGREES, _WEIGHTED = 1, 2, 4


class Step(NamedTuple):
    """Which step of a training a request belongs to, and whether all ranks must say the same."""

    number: int = -1
    agrees: bool = False


# Of what is submitted: set by whoever takes steps, around the operations of one.
STEP: contextvars.ContextVar[Step] = contextvars.ContextVar("step", default=Step())


class Memory(NamedTuple):
    """A dense row-major tensor in host memory, or on a device: then what `stream` has so far writes it. `owner` keeps it
    alive."""

    address: int
    shape: tuple[int, ...]
    dtype: int
    owner: Any
    device: int = -1
    stream: int = 0


class Reduction(NamedTuple):
    """The fields of a request that an operation which reduces has."""

    op: Op = Op.AVERAGE
    prescale: float = 1.0
    postscale: float = 1.0
    compression: int = 0
    weight: Optional[float] = None  # of an average by weights

    def fill(self, request: Request) -> None:
        """Writes these fields, and the flag of a weight beside those that are set."""
        request.op, request.prescale, request.postscale, request.compression, weight = self
        if weight is not None:
            request.weight = weight
            request.flags |= _WEIGHTED


def deadline_of(timeout: Optional[float]) -> int:
    """The deadline_ns of a request that is to take so many seconds at most; None: the engine's."""
    return 0 if timeout is None else int(min(max(timeout, 1e-9) * 1e9, 2**62))


def supported(op: Op) -> Op:
    """The op itself; raises NotImplementedError for Adasum."""
    op = Op(op)
    if op is Op.ADASUM:
        raise NotImplementedError("Adasum: Ronde has no such reduction yet; use Average or Sum")
    return op


@functools.lru_cache(maxsize=1024)
def _shape(shape: tuple[int, ...]) -> ctypes.Array:
    return (ctypes.c_int64 * max(1, len(shape)))(*shape)


def _blank_request() -> bytes:
    request = Request()
    LIBRARY.ronde_request_init_sized(ctypes.byref(request), ctypes.sizeof(request))
    return bytes(request)


_BLANK = _blank_request()


_OURS: set[str] = set()  # source files of this package and of torch that have been seen


def _is_ours(frame: FrameType) -> bool:
    ours = frame.f_globals.get("__name__", "").partition(".")[0] in ("ronde", "torch")
    file = frame.f_code.co_filename
    if ours and not file.startswith("<"):  # what is made at run time has names that anybody may use
        _OURS.add(file)
    return ours


def _place(remark: str = "") -> tuple[Optional[bytes], int]:
    """File and line of the caller: the nearest frame that is neither this package nor torch."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file not in _OURS and not _is_ours(frame):
            if remark:  # no path is looked for in it
                file = f"{remark.replace('/', ' or ')} in {os.path.basename(file)}"
            return file.encode(errors="replace"), frame.f_lineno
        frame = frame.f_back
    return None, 0


def _requests(names: Sequence[str], inputs: Sequence[Optional[Memory]], outputs: Sequence[Optional[Memory]],
              reduction: Reduction, root: int = 0, splits: Optional[Sequence[int]] = None, priority: int = 0,
              blocking: bool = False, remark: str = "") -> Any:
    """The requests of tensors, for the C ABI; the memory must be kept alive."""
    requests, step = (Request * len(names)).from_buffer_copy(_BLANK * len(names)), STEP.get()
    file, line = _place(remark)
    for request, name, source, target in zip(requests, names, inputs, outputs):
        request.name = name.encode()
        request.file, request.line = file, line
        request.flags = (_WILL_WAIT if blocking else 0) | (_STEP_AGREES if step.agrees else 0)
        request.step = step.number
        request.priority = priority
        memory = source or target
        if memory is None:
            continue  # a barrier
        request.input = source.address if source else None
        request.output = target.address if target else None
        if memory.shape:
            request.shape = _shape(memory.shape)
        request.dimensions = len(memory.shape)
        request.dtype = memory.dtype
        request.device, request.stream = memory.device, memory.stream
        reduction.fill(request)
        request.root = root
        if splits is not None:
            request.splits = (ctypes.c_int64 * max(1, len(splits)))(*splits)
            request.split_count = len(splits)
    return requests
