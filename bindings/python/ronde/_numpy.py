# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays: how they become tensors of the runtime, and ronde.Engine."""
from __future__ import annotations

import ctypes
import math
from typing import Any, Optional, Sequence, Union

import numpy

from . import _engine
from ._arrays import Arrays, require_sum
from ._compression import Compression, Compressor
from ._library import LIBRARY, InvalidArgument, Op, call
from ._prepared import Prepared
from ._requests import Memory, Reduction, supported
from ._works import Output, Work, _Flight

DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "bfloat16", "float32",
          "float64", "bool")  # in the order of ronde_dtype
# What an element is to the runtime: (ronde_dtype, the dimensions that it adds). A complex number is two others.
NUMBERS: dict[str, tuple[int, tuple[int, ...]]] = {
    **{name: (number, ()) for number, name in enumerate(DTYPES)},
    "complex64": (DTYPES.index("float32"), (2,)), "complex128": (DTYPES.index("float64"), (2,))}
TYPES = f"Ronde has {', '.join(DTYPES)}, and sums of complex numbers"


def memory_of(address: int, shape: Sequence[int], numbers: tuple[int, tuple[int, ...]], owner: Any) -> Memory:
    """The memory of an array of elements that NUMBERS has."""
    number, parts = numbers
    return Memory(address, (*((1,) if parts and not shape else shape), *parts), number, owner)


class _Lent:
    """Memory of somebody else as NumPy sees it; what it holds keeps that memory alive."""

    def __init__(self, address: int, count: int, owner: Any) -> None:
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": (count,), "typestr": "|u1"}
        self.owner = owner


def lent_array(address: int, shape: Sequence[int], dtype: numpy.dtype, owner: Any) -> numpy.ndarray:
    """An array over memory that lives as long as `owner` does. Nothing is copied."""
    count = math.prod(shape)
    if count == 0:
        return numpy.empty(shape, dtype)
    return numpy.asarray(_Lent(address, count * dtype.itemsize, owner)).view(dtype).reshape(shape)


class NumpyArrays(Arrays[numpy.ndarray]):
    """Arrays of NumPy, and whatever numpy.asarray() takes where only its values are read."""

    def memory(self, array: numpy.ndarray) -> Memory:
        numbers = NUMBERS.get(array.dtype.name)
        if numbers is None or not array.dtype.isnative:
            raise InvalidArgument(f"arrays of type {array.dtype}: {TYPES}, of this machine's byte order; convert it "
                                  "with astype()")
        return memory_of(array.__array_interface__["data"][0], array.shape, numbers, array)

    def contiguous(self, array: Any) -> numpy.ndarray:
        array = numpy.asarray(array)
        return array if array.flags.c_contiguous else array.copy(order="C")

    def require_writable(self, array: numpy.ndarray) -> None:
        if not isinstance(array, numpy.ndarray) or not array.flags.writeable:
            raise InvalidArgument(f"an operation in place writes into its argument, which is {_kind(array)}: pass a "
                                  "numpy.ndarray that may be written")

    def empty(self, like: numpy.ndarray, rows: Optional[int] = None) -> numpy.ndarray:
        return numpy.empty(like.shape if rows is None else (rows, *like.shape[1:]), like.dtype)

    def assign(self, target: numpy.ndarray, values: numpy.ndarray) -> None:
        target[...] = values

    def scaled(self, array: numpy.ndarray, factor: float) -> numpy.ndarray:
        return (array.astype(numpy.float64) * factor).astype(array.dtype)

    def output(self, output: Output, like: numpy.ndarray) -> numpy.ndarray:
        shape = output.shape[:-1] if like.dtype.kind == "c" else output.shape
        return lent_array(output.address, shape, like.dtype, output)

    def splits(self, splits: Any) -> list[int]:
        splits = numpy.asarray(splits)
        if splits.dtype.kind not in "iu" or splits.ndim != 1:
            raise InvalidArgument(f"splits are a list of integers, one for each rank, and not {splits.ndim}-dimensional "
                                  f"of type {splits.dtype}")
        return [int(rows) for rows in splits]

    def received_splits(self, splits: list[int], like: Any) -> numpy.ndarray:
        return numpy.array(splits, numpy.int32)


def _kind(array: Any) -> str:
    return "a read-only array" if isinstance(array, numpy.ndarray) else f"a {type(array).__name__}"


_arrays = NumpyArrays()


class Engine(_engine.Engine):
    """A rank's part of the runtime, for programs that want more than init() gives: several engines, names without a
    prefix (as C and C++ ranks of the same job use them), and no state outside of it.

        with ronde.Engine() as engine:
            work = engine.allreduce("fc1/weight", gradient)  # at once, in place
            work.wait()                                      # raises ronde.Error

    Opening it joins the MPI job (alone it is a job of one) and waits until every rank has opened its engine, at most
    RONDE_START_TIMEOUT_SECONDS. Engine(job, rank) joins a LocalJob instead. At the end of the block it closes itself.

    Operations return a Work at once. Until that is done its arrays belong to the engine, which keeps them alive.
    Arrays that an operation writes are contiguous, and those that it only reads are copied if they are not. A name is
    the same on all ranks, and in flight once at a time. Any number of threads may use an Engine.
    """

    def _target(self, array: numpy.ndarray) -> Memory:
        _arrays.require_writable(array)
        if not array.flags.c_contiguous:
            raise InvalidArgument("an operation writes into contiguous arrays only: pass numpy.ascontiguousarray(...) "
                                  "and copy the result back")
        return _arrays.memory(array)

    def _reduction(self, arrays: Sequence[numpy.ndarray], op: Op, prescale: float, postscale: float,
                   compression: type[Compressor], weight: Optional[float]) -> Reduction:
        for array in arrays:
            require_sum(array, op)
        return Reduction(supported(op), prescale, postscale, compression.wire, weight)

    def allreduce(self, name: str, array: numpy.ndarray, op: Op = Op.AVERAGE, *, out: Optional[numpy.ndarray] = None,
                  prescale: float = 1.0, postscale: float = 1.0, compression: type[Compressor] = Compression.none,
                  priority: int = 0, weight: Optional[float] = None) -> Work:
        """Reduces the arrays of all ranks, element by element, into `out`, or in place without it.

        prescale, postscale: floating types; multiply every contribution, and the result. compression: f32 only.
        weight: of this rank's values in an average, such as its number of samples: every rank gives one, and it may
        change from step to step.
        """
        target = array if out is None else out
        source = None if out is None else _arrays.memory(_arrays.contiguous(array))
        flight = self._submit("allreduce", [name], [_same_shape(source, target)], [self._target(target)],
                              self._reduction([target], op, prescale, postscale, compression, weight), priority=priority)
        return Work(self, [flight], lambda _: target)

    def grouped_allreduce(self, tensors: dict[str, numpy.ndarray], op: Op = Op.AVERAGE, *, prescale: float = 1.0,
                          postscale: float = 1.0, compression: type[Compressor] = Compression.none,
                          weight: Optional[float] = None) -> Work:
        """allreduce() of several arrays in place as one unit: all of one type, in the same order on all ranks."""
        arrays = list(tensors.values())
        flight = self._submit("grouped_allreduce", list(tensors), [None] * len(arrays),
                              [self._target(array) for array in arrays],
                              self._reduction(arrays, op, prescale, postscale, compression, weight))
        return Work(self, [flight], lambda _: arrays)

    def broadcast(self, name: str, array: numpy.ndarray, root: int = 0) -> Work:
        """Copies the array of rank `root` into the array of every rank."""
        flight = self._submit("broadcast", [name], [None], [self._target(array)], root=root)
        return Work(self, [flight], lambda _: array)

    def grouped_broadcast(self, tensors: dict[str, numpy.ndarray], root: int = 0) -> Work:
        """broadcast() of several arrays as one unit: all of one type, in the same order on all ranks."""
        arrays = list(tensors.values())
        flight = self._submit("grouped_broadcast", list(tensors), [None] * len(arrays),
                              [self._target(array) for array in arrays], root=root)
        return Work(self, [flight], lambda _: arrays)

    def allgather(self, name: str, array: numpy.ndarray) -> Work:
        """Concatenates the arrays of all ranks along the first dimension, which may differ between ranks. The result
        is a new array, in memory of the runtime's that lives as long as the array."""
        source = _arrays.memory(_arrays.contiguous(array))
        flight = self._submit("allgather", [name], [source], [None])
        return Work(self, [flight], lambda done: _arrays.output(Output(done[0]), source.owner))

    def reduce_scatter(self, name: str, array: numpy.ndarray, op: Op = Op.AVERAGE, *,
                       splits: Optional[Sequence[int]] = None, prescale: float = 1.0, postscale: float = 1.0,
                       compression: type[Compressor] = Compression.none, weight: Optional[float] = None) -> Work:
        """Reduces, and leaves each rank its rows in a new array: rank r gets splits[r] rows, or, without splits, an
        even share, where the first ranks get one row more if there is a rest."""
        source = _arrays.memory(_arrays.contiguous(array))
        if not source.shape:
            raise InvalidArgument(f"'{name}': a scalar has no rows that could be scattered", tensor=name)
        rows, rest = divmod(source.shape[0], max(1, self.size))  # the call itself refuses an engine of size 0
        rows += 1 if self.rank < rest else 0
        if splits is not None and len(splits) == self.size:  # the call itself refuses others
            rows = max(0, splits[self.rank])
        target = _arrays.empty(source.owner, rows)
        flight = self._submit("reduce_scatter", [name], [source], [_arrays.memory(target)],
                              self._reduction([source.owner], op, prescale, postscale, compression, weight),
                              splits=splits)
        return Work(self, [flight], lambda _: target)

    def all_to_all(self, name: str, array: numpy.ndarray, splits: Optional[Sequence[int]] = None) -> Work:
        """Sends splits[r] rows to rank r, in order; without splits every rank gets the same number. The result is
        (rows from rank 0, then from rank 1, and so on; how many came from each rank)."""
        source = _arrays.memory(_arrays.contiguous(array))
        flight = self._submit("all_to_all", [name], [source], [None], splits=splits)

        def finish(done: list[_Flight]) -> tuple[numpy.ndarray, list[int]]:
            output = Output(done[0])
            return _arrays.output(output, source.owner), output.received_splits()

        return Work(self, [flight], finish)

    def barrier(self, name: str = "barrier") -> Work:
        """Is done when every rank has called it with this name."""
        return Work(self, [self._meet(name)], lambda _: None)

    def prepare_allreduce(self, name: str, array: numpy.ndarray, op: Op = Op.AVERAGE, *,
                          out: Optional[numpy.ndarray] = None, prescale: float = 1.0, postscale: float = 1.0,
                          timeout: Optional[float] = None) -> Prepared:
        """Agrees on allreduce() of these arrays, to be run as often as wanted; every rank calls it, and waits."""
        target = array if out is None else out
        source = None if out is None else _arrays.memory(self._as_it_lies(array))
        return Prepared(self, "allreduce", name, _same_shape(source, target), self._target(target), lambda _: target,
                        self._reduction([target], op, prescale, postscale, Compression.none, None), timeout=timeout)

    def prepare_broadcast(self, name: str, array: numpy.ndarray, root: int = 0,
                          timeout: Optional[float] = None) -> Prepared:
        """The same for broadcast()."""
        return Prepared(self, "broadcast", name, None, self._target(array), lambda _: array, root=root, timeout=timeout)

    def prepare_allgather(self, name: str, array: numpy.ndarray, timeout: Optional[float] = None) -> Prepared:
        """The same for allgather(). Each call returns an array of its own."""
        source = _arrays.memory(self._as_it_lies(array))

        def result(prepared: ctypes.c_void_p) -> numpy.ndarray:
            data, rows = ctypes.c_void_p(), ctypes.c_int64()
            call(LIBRARY.ronde_prepared_output, prepared, ctypes.byref(data), ctypes.byref(rows), tensor=name)
            return lent_array(data.value or 0, (rows.value, *array.shape[1:]), array.dtype, made).copy()

        made = Prepared(self, "allgather", name, source, None, result, timeout=timeout)
        return made

    def prepare_reduce_scatter(self, name: str, array: numpy.ndarray, out: numpy.ndarray, op: Op = Op.AVERAGE,
                               timeout: Optional[float] = None) -> Prepared:
        """The same for reduce_scatter(): this rank's rows come into `out`."""
        return Prepared(self, "reduce_scatter", name, _arrays.memory(self._as_it_lies(array)), self._target(out),
                        lambda _: out, self._reduction([array], op, 1.0, 1.0, Compression.none, None), timeout=timeout)

    def prepare_barrier(self, name: str, timeout: Optional[float] = None) -> Prepared:
        """The same for barrier()."""
        return Prepared(self, "barrier", name, None, None, lambda _: None, timeout=timeout)

    @staticmethod
    def _as_it_lies(array: numpy.ndarray) -> numpy.ndarray:
        if not isinstance(array, numpy.ndarray) or not array.flags.c_contiguous:
            raise InvalidArgument("a prepared operation reads the same contiguous array in every call: pass one")
        return array

    def join(self) -> Work:
        """This rank has no more to give until all ranks have joined; the result is the last of them. The others go on
        without it: ronde_join_async of ronde.h says how."""
        def last(done: list[_Flight]) -> int:
            rank = ctypes.c_int32()
            call(LIBRARY.ronde_work_last_joined, done[0].pointer, ctypes.byref(rank), tensor="join")
            return rank.value

        return Work(self, [self._join()], last)

    def buffer(self, shape: Sequence[int], dtype: Any = numpy.float32) -> numpy.ndarray:
        """A new array of zeros in memory that the ranks of this host share: an allreduce in place of such an array on
        every rank is done where it lies. Drop it, and all views of it, only when no work on it is in flight."""
        array = allocated(self, LIBRARY.ronde_buffer_allocate, shape, dtype)
        array[...] = 0
        return array

    def empty(self, shape: Union[int, Sequence[int]], dtype: Any = numpy.float32) -> numpy.ndarray:
        """buffer() without values; where the board has no room it is ordinary memory, which the engine says once, at
        info."""
        return allocated(self, LIBRARY.ronde_buffer_allocate_anywhere, shape, dtype)


class _Buffer:
    def __init__(self, pointer: ctypes.c_void_p) -> None:
        self._pointer = pointer

    def __del__(self) -> None:
        LIBRARY.ronde_buffer_release(self._pointer)


def allocated(engine: _engine.Engine, function: Any, shape: Union[int, Sequence[int]], dtype: Any) -> numpy.ndarray:
    """A new array without values in memory that a function of the C ABI allocates."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    dtype = numpy.dtype(dtype)
    pointer = ctypes.c_void_p()
    with engine._lock:
        call(function, engine._handle(), math.prod(shape) * dtype.itemsize, ctypes.byref(pointer))
    return lent_array(LIBRARY.ronde_buffer_memory(pointer) or 0, shape, dtype, _Buffer(pointer))


def _same_shape(source: Optional[Memory], target: numpy.ndarray) -> Optional[Memory]:
    if source is not None and (source.owner.shape, source.owner.dtype) != (target.shape, target.dtype):
        raise InvalidArgument(f"the array is {source.owner.shape} of {source.owner.dtype}, and `out` {target.shape} of "
                              f"{target.dtype}: make them alike")
    return source
