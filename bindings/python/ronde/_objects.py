# SPDX-License-Identifier: Apache-2.0
"""Any Python object that pickle takes, as bytes."""
from __future__ import annotations

import pickle
from typing import Any, Callable, Optional

import numpy

from ._job import rank
from ._library import Error, Status
from ._numpy import NumpyArrays
from ._operations import Operations
from ._process_sets import ProcessSet, engine_of, global_process_set, name_of

_operations = Operations(NumpyArrays())


_FAILED = -1  # in the place of a size: without it, the others would wait for what never comes


def _not_serialized(ranks: list[int], name: str) -> Error:
    text = ", ".join(map(str, ranks))
    return Error(f"'{name}': the object of rank {text} could not be serialized, and no rank's was sent: the error "
                 "there says why", Status.INVALID_ARGUMENT, ranks[0], tensor=name)


def broadcast_bytes(make: Callable[[], bytes], root_rank: int, name: str,
                    process_set: ProcessSet = global_process_set) -> bytes:
    """Returns on every rank what make() returns on rank root_rank, where alone it is called. What it raises there is
    raised there, and on the other ranks an Error that names the root."""
    is_root = rank() == root_rank
    data, failure = b"", None
    if is_root:
        try:
            data = make()
        except Exception as error:  # raised once the others know
            failure = error
    size = _FAILED if failure else len(data)
    size = int(_operations.broadcast(numpy.array([size], numpy.int64), root_rank, f"{name}.size", process_set)[0])
    if failure:
        raise failure
    if size == _FAILED:
        raise _not_serialized([root_rank], name)
    values = numpy.frombuffer(data, numpy.uint8) if is_root else numpy.empty(size, numpy.uint8)
    values = _operations.broadcast(values, root_rank, f"{name}.bytes", process_set)
    return data if is_root else values.tobytes()


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None,
                     process_set: ProcessSet = global_process_set) -> Any:
    """Returns rank root_rank's object, which is sent with pickle: as trustworthy as the ranks are. Where pickle does
    not take it, every rank gets an error."""
    engine_of(process_set)  # without one nothing is counted
    data = broadcast_bytes(lambda: pickle.dumps(obj), root_rank, name_of("object", name, process_set),
                           process_set)
    return obj if rank() == root_rank else pickle.loads(data)


def allgather_object(obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set) -> list[Any]:
    """Returns the objects of all ranks, in rank order; they are sent with pickle. Where pickle does not take one,
    every rank gets an error."""
    engine_of(process_set)  # without one nothing is counted
    name = name_of("object", name, process_set)
    data, failure = b"", None
    try:
        data = pickle.dumps(obj)
    except Exception as error:  # raised once the others know
        failure = error
    size = _FAILED if failure else len(data)
    counts = _operations.allgather(numpy.array([size], numpy.int64), f"{name}.size", process_set)
    if failure:
        raise failure
    failed = [process_set.ranks[one] for one in numpy.flatnonzero(counts == _FAILED).tolist()]
    if failed:
        raise _not_serialized(failed, name)
    everything = _operations.allgather(numpy.frombuffer(data, numpy.uint8), f"{name}.bytes", process_set)
    ends = numpy.cumsum(counts)
    return [pickle.loads(everything[end - count:end].tobytes()) for end, count in zip(ends, counts)]
