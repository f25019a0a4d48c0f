# SPDX-License-Identifier: Apache-2.0
"""Any Python object that pickle takes, as bytes."""
from __future__ import annotations

import pickle
from typing import Any, Optional

import numpy

from ._job import name_of, rank
from ._library import Error, Status
from ._missing import ProcessSet, global_process_set
from ._numpy import NumpyArrays
from ._operations import Operations

_operations = Operations(NumpyArrays())


def _pickled(obj: Any) -> tuple[bytes, Optional[Exception]]:
    """Its bytes, or why there are none: all ranks must be told before this one raises that."""
    try:
        return pickle.dumps(obj), None
    except Exception as error:  # whatever an object's own code raises
        return b"", error


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """Returns rank root_rank's object, which is sent with pickle: as trustworthy as the ranks are."""
    name = name_of("object", name)
    data, failure = _pickled(obj) if rank() == root_rank else (b"", None)
    size = numpy.array([-1 if failure else len(data)], numpy.int64)
    count = _operations.broadcast(size, root_rank, f"{name}.size", process_set)
    if failure:
        raise failure
    if count[0] < 0:
        raise Error(f"rank {root_rank} cannot pickle its object", Status.INVALID_ARGUMENT, root_rank, tensor=name)
    values = numpy.frombuffer(data, numpy.uint8) if rank() == root_rank else numpy.empty(count[0], numpy.uint8)
    values = _operations.broadcast(values, root_rank, f"{name}.bytes", process_set)
    return obj if rank() == root_rank else pickle.loads(values.tobytes())


def allgather_object(obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Returns the objects of all ranks, in rank order; they are sent with pickle."""
    name = name_of("object", name)
    pickled, failure = _pickled(obj)
    data = numpy.frombuffer(pickled, numpy.uint8)
    size = numpy.array([-1 if failure else len(data)], numpy.int64)
    counts = _operations.allgather(size, f"{name}.size", process_set)
    if failure:
        raise failure
    if counts.min() < 0:
        bad = int(counts.argmin())
        raise Error(f"rank {bad} cannot pickle its object", Status.INVALID_ARGUMENT, bad, tensor=name)
    everything = _operations.allgather(data, f"{name}.bytes", process_set)
    ends = numpy.cumsum(counts)
    return [pickle.loads(everything[end - count:end].tobytes()) for end, count in zip(ends, counts)]
