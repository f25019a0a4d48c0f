# SPDX-License-Identifier: Apache-2.0
"""Any Python object that pickle takes, as bytes."""
from __future__ import annotations

import pickle
from typing import Any, Optional

import numpy

from ._job import name_of, rank
from ._missing import ProcessSet, global_process_set
from ._numpy import NumpyArrays
from ._operations import Operations

_operations = Operations(NumpyArrays())


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """Returns rank root_rank's object, which is sent with pickle: as trustworthy as the ranks are."""
    name = name_of("object", name)
    data = pickle.dumps(obj) if rank() == root_rank else b""
    count = _operations.broadcast(numpy.array([len(data)], numpy.int64), root_rank, f"{name}.size", process_set)
    values = numpy.frombuffer(data, numpy.uint8) if rank() == root_rank else numpy.empty(count[0], numpy.uint8)
    values = _operations.broadcast(values, root_rank, f"{name}.bytes", process_set)
    return obj if rank() == root_rank else pickle.loads(values.tobytes())


def allgather_object(obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Returns the objects of all ranks, in rank order; they are sent with pickle."""
    name = name_of("object", name)
    data = numpy.frombuffer(pickle.dumps(obj), numpy.uint8)
    counts = _operations.allgather(numpy.array([len(data)], numpy.int64), f"{name}.size", process_set)
    everything = _operations.allgather(data, f"{name}.bytes", process_set)
    ends = numpy.cumsum(counts)
    return [pickle.loads(everything[end - count:end].tobytes()) for end, count in zip(ends, counts)]
