# SPDX-License-Identifier: Apache-2.0
"""Horovod's operations, once for every kind of array."""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Generic, Optional, Sequence

from ._arrays import Array, Arrays, Lane
from ._compression import Compression, Compressor
from ._engine import Engine
from ._library import InvalidArgument, Op
from ._process_sets import ProcessSet, engine_of, global_process_set, name_of, rank_in
from ._requests import Reduction, supported
from ._works import Output, Work, _Flight

def _op_of(average: Optional[bool], op: Optional[Op]) -> Op:
    """Horovod's two ways to say it; neither is an average."""
    if average is not None and op is not None:
        raise InvalidArgument("average and op say the same thing: give op alone")
    if op is None:
        return Op.SUM if average is False else Op.AVERAGE
    return supported(op)


class Operations(Generic[Array]):
    """The operations of the job that init() joins, on one kind of array. Names are the same on all ranks; operations
    without a name are numbered, so that every rank must call them in the same order. Forms that end in _async return
    a Work at once; forms that end in _ work in place. Errors are ronde.Error with the texts of the runtime."""

    def __init__(self, arrays: Arrays[Array]) -> None:
        self._arrays = arrays

    @staticmethod
    def _or_tell(engine: Engine, names: Sequence[str], taken: Callable[[], Any]) -> Any:
        """taken(). Where that refuses an array, the operations of these names are errors on the other ranks, too."""
        try:
            return taken()
        except Exception as error:
            engine._refuse(names, error)
            raise

    # ---- operations that reduce ----

    def _lanes(self, engine: Engine, tensors: Sequence[Array], names: Sequence[str], how: Reduction,
               compression: type[Compressor], in_place: bool) -> tuple[list[Lane[Array]], list[list[int]]]:
        """The tensors' lanes, and which of them are one unit: those that the runtime can take together. Where a tensor
        is refused, every unit is an error on the other ranks, too."""
        lanes: list[Any] = []
        units: dict[Any, list[int]] = {}
        refused: Optional[Exception] = None
        for i, tensor in enumerate(tensors):
            lane = None
            try:
                lane = Lane(self._arrays, tensor, how, compression, in_place)
            except Exception as error:
                refused = refused or error
                with contextlib.suppress(Exception):  # where its type can be read
                    lane = Lane(self._arrays, self._arrays.empty(tensor, 0), how, compression, False)
            lanes.append(lane)
            units.setdefault(i if lane is None else (lane.dtype, lane.how(how)), []).append(i)
        if refused is not None:
            # One of no type that Ronde has is most likely of the type of others elsewhere, so of their unit.
            known = [unit for unit in units.values() if lanes[unit[0]] is not None] or list(units.values())
            firsts = [names[unit[0]] for unit in known]
            engine._refuse(firsts if len(names) == 1 else [f"group of {name}" for name in firsts], refused)
            raise refused
        return lanes, list(units.values())

    def _start(self, engine: Engine, operation: str, lanes: Sequence[Lane[Array]], units: Sequence[Sequence[int]],
               names: Sequence[str], how: Reduction, finish: Callable[[list[Array]], Any], **options: Any) -> Work:
        flights: list[_Flight] = []
        work = Work(engine, flights, lambda _: finish([lane.result() for lane in lanes]))
        for unit in units:  # where one is refused, the work is dropped with those before
            flights.append(engine._submit(operation, [names[i] for i in unit], [lanes[i].input for i in unit],
                                          [lanes[i].output for i in unit], lanes[unit[0]].how(how), **options))
        return work

    def _allreduce(self, tensors: Sequence[Array], in_place: bool, grouped: bool, average: Optional[bool],
                   name: Optional[str], op: Optional[Op], prescale: float, postscale: float, process_set: ProcessSet,
                   compression: type[Compressor], blocking: bool = False, weight: Optional[float] = None) -> Work:
        engine = engine_of(process_set)
        how = Reduction(_op_of(average, op), prescale, postscale, weight=weight)
        tensors = list(tensors)
        base = name_of("grouped_allreduce" if grouped else "allreduce", name, process_set)
        names = [f"{base}_{i}of{len(tensors)}" for i in range(len(tensors))] if grouped else [base]
        lanes, units = self._lanes(engine, tensors, names, how, compression, in_place)
        return self._start(engine, "grouped_allreduce" if len(lanes) > 1 else "allreduce", lanes, units, names, how,
                           list if grouped else _only, blocking=blocking)

    def allreduce_async(self, tensor: Array, average: Optional[bool] = None, name: Optional[str] = None,
                        op: Optional[Op] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                        process_set: ProcessSet = global_process_set, *,
                        compression: type[Compressor] = Compression.none,
                        weight: Optional[float] = None) -> Work:
        """Reduces the tensors of all ranks, element by element, into a new array on every rank. The tensor must not
        change until the work is done. weight: of this rank's values in an average, such as its number of samples:
        every rank gives one, and it may change from step to step."""
        return self._allreduce([tensor], False, False, average, name, op, prescale_factor, postscale_factor,
                               process_set, compression, weight=weight)

    def allreduce(self, tensor: Array, average: Optional[bool] = None, name: Optional[str] = None,
                  compression: type[Compressor] = Compression.none, op: Optional[Op] = None,
                  prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                  process_set: ProcessSet = global_process_set,
                  *, weight: Optional[float] = None) -> Array:
        """allreduce_async() that waits; returns the new array."""
        return self._allreduce([tensor], False, False, average, name, op, prescale_factor, postscale_factor,
                               process_set, compression, True, weight=weight).wait()

    def allreduce_async_(self, tensor: Array, average: Optional[bool] = None, name: Optional[str] = None,
                         op: Optional[Op] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                         process_set: ProcessSet = global_process_set, *,
                         compression: type[Compressor] = Compression.none,
                         weight: Optional[float] = None) -> Work:
        """allreduce_async() in place: nothing is copied if the array is contiguous."""
        return self._allreduce([tensor], True, False, average, name, op, prescale_factor, postscale_factor,
                               process_set, compression, weight=weight)

    def allreduce_(self, tensor: Array, average: Optional[bool] = None, name: Optional[str] = None,
                   op: Optional[Op] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                   process_set: ProcessSet = global_process_set,
                   *, weight: Optional[float] = None) -> Array:
        """allreduce_async_() that waits; returns the array."""
        return self._allreduce([tensor], True, False, average, name, op, prescale_factor, postscale_factor,
                               process_set, Compression.none, True, weight=weight).wait()

    def grouped_allreduce_async(self, tensors: Sequence[Array], average: Optional[bool] = None,
                                name: Optional[str] = None, op: Optional[Op] = None, prescale_factor: float = 1.0,
                                postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set, *,
                                compression: type[Compressor] = Compression.none,
                                weight: Optional[float] = None) -> Work:
        """allreduce_async() of several tensors as one unit, those of each type. The result is a list."""
        return self._allreduce(tensors, False, True, average, name, op, prescale_factor, postscale_factor,
                               process_set, compression, weight=weight)

    def grouped_allreduce(self, tensors: Sequence[Array], average: Optional[bool] = None, name: Optional[str] = None,
                          compression: type[Compressor] = Compression.none, op: Optional[Op] = None,
                          prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                          process_set: ProcessSet = global_process_set,
                          *, weight: Optional[float] = None) -> list[Array]:
        """grouped_allreduce_async() that waits."""
        return self._allreduce(tensors, False, True, average, name, op, prescale_factor, postscale_factor,
                               process_set, compression, True, weight=weight).wait()

    def grouped_allreduce_async_(self, tensors: Sequence[Array], average: Optional[bool] = None,
                                 name: Optional[str] = None, op: Optional[Op] = None, prescale_factor: float = 1.0,
                                 postscale_factor: float = 1.0, process_set: ProcessSet = global_process_set, *,
                                 compression: type[Compressor] = Compression.none,
                                 weight: Optional[float] = None) -> Work:
        """grouped_allreduce_async() in place."""
        return self._allreduce(tensors, True, True, average, name, op, prescale_factor, postscale_factor,
                               process_set, compression, weight=weight)

    def grouped_allreduce_(self, tensors: Sequence[Array], average: Optional[bool] = None, name: Optional[str] = None,
                           op: Optional[Op] = None, prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                           process_set: ProcessSet = global_process_set,
                           *, weight: Optional[float] = None) -> list[Array]:
        """grouped_allreduce_async_() that waits; returns the arrays."""
        return self._allreduce(tensors, True, True, average, name, op, prescale_factor, postscale_factor,
                               process_set, Compression.none, True, weight=weight).wait()

    def _reducescatter(self, tensors: Sequence[Array], grouped: bool, name: Optional[str], op: Op, prescale: float,
                       postscale: float, process_set: ProcessSet, compression: type[Compressor],
                       blocking: bool = False, weight: Optional[float] = None) -> Work:
        engine = engine_of(process_set)
        how = Reduction(supported(op), prescale, postscale, weight=weight)
        tensors = list(tensors)
        base = name_of("grouped_reducescatter" if grouped else "reducescatter", name, process_set)
        names = [f"{base}_{i}of{len(tensors)}" for i in range(len(tensors))] if grouped else [base]

        def lane(tensor: Array) -> Lane[Array]:
            tensor = self._arrays.contiguous(tensor)
            shape = self._arrays.memory(tensor).shape
            if not shape:
                raise InvalidArgument(f"'{base}': a scalar has no rows that could be scattered", tensor=base)
            rows, rest = divmod(shape[0], engine.size)
            return Lane(self._arrays, tensor, how, compression, False, rows + (1 if engine.rank < rest else 0))

        lanes = self._or_tell(engine, names, lambda: [lane(tensor) for tensor in tensors])
        return self._start(engine, "reduce_scatter", lanes, [[i] for i in range(len(lanes))], names, how,
                           list if grouped else _only, blocking=blocking)

    def reducescatter_async(self, tensor: Array, name: Optional[str] = None, op: Op = Op.AVERAGE,
                            process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                            postscale_factor: float = 1.0,
                            *, weight: Optional[float] = None) -> Work:
        """Reduces as allreduce_async() and leaves each rank its rows: an even share of the first dimension, where the
        first ranks have one row more if there is a rest."""
        return self._reducescatter([tensor], False, name, op, prescale_factor, postscale_factor, process_set,
                                   Compression.none, weight=weight)

    def reducescatter(self, tensor: Array, name: Optional[str] = None,
                      compression: type[Compressor] = Compression.none, op: Op = Op.AVERAGE,
                      process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0,
                      *, weight: Optional[float] = None) -> Array:
        """reducescatter_async() that waits."""
        return self._reducescatter([tensor], False, name, op, prescale_factor, postscale_factor, process_set,
                                   compression, True, weight=weight).wait()

    def grouped_reducescatter_async(self, tensors: Sequence[Array], name: Optional[str] = None, op: Op = Op.AVERAGE,
                                    process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                                    postscale_factor: float = 1.0,
                                    *, weight: Optional[float] = None) -> Work:
        """reducescatter_async() of several tensors; the result is a list."""
        return self._reducescatter(tensors, True, name, op, prescale_factor, postscale_factor, process_set,
                                   Compression.none, weight=weight)

    def grouped_reducescatter(self, tensors: Sequence[Array], name: Optional[str] = None,
                              compression: type[Compressor] = Compression.none, op: Op = Op.AVERAGE,
                              process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                              postscale_factor: float = 1.0,
                              *, weight: Optional[float] = None) -> list[Array]:
        """grouped_reducescatter_async() that waits."""
        return self._reducescatter(tensors, True, name, op, prescale_factor, postscale_factor, process_set,
                                   compression, True, weight=weight).wait()

    # ---- operations that move ----

    def _gather(self, tensors: Sequence[Array], grouped: bool, name: Optional[str], process_set: ProcessSet,
                blocking: bool = False) -> Work:
        engine = engine_of(process_set)
        base = name_of("grouped_allgather" if grouped else "allgather", name, process_set)
        names = [f"{base}_{i}of{len(tensors)}" for i in range(len(tensors))] if grouped else [base]
        pick = list if grouped else _only
        flights: list[_Flight] = []
        memories = self._or_tell(engine, names, lambda: [self._arrays.memory(self._arrays.contiguous(tensor))
                                                         for tensor in tensors])
        work = Work(engine, flights, lambda done: pick([self._arrays.output(Output(flight), memory.owner)
                                                        for flight, memory in zip(done, memories)]))
        for one, memory in zip(names, memories):
            flights.append(engine._submit("allgather", [one], [memory], [None], blocking=blocking))
        return work

    def allgather_async(self, tensor: Array, name: Optional[str] = None,
                        process_set: ProcessSet = global_process_set) -> Work:
        """Concatenates the tensors of all ranks along the first dimension, which may differ between ranks. The result
        lies where the runtime has put it: it is not copied."""
        return self._gather([tensor], False, name, process_set)

    def allgather(self, tensor: Array, name: Optional[str] = None,
                  process_set: ProcessSet = global_process_set) -> Array:
        """allgather_async() that waits."""
        return self._gather([tensor], False, name, process_set, True).wait()

    def grouped_allgather_async(self, tensors: Sequence[Array], name: Optional[str] = None,
                                process_set: ProcessSet = global_process_set) -> Work:
        """allgather_async() of several tensors; the result is a list."""
        return self._gather(tensors, True, name, process_set)

    def grouped_allgather(self, tensors: Sequence[Array], name: Optional[str] = None,
                          process_set: ProcessSet = global_process_set) -> list[Array]:
        """grouped_allgather_async() that waits."""
        return self._gather(tensors, True, name, process_set, True).wait()

    def _broadcast(self, tensors: Sequence[Array], in_place: bool, names: Sequence[str], root_rank: int,
                   process_set: ProcessSet, finish: Callable[[list[Array]], Any] = list,
                   blocking: bool = False) -> Work:
        """Several tensors are one unit, those of each type."""
        engine, root = engine_of(process_set), rank_in(process_set, root_rank)
        lanes, units = self._lanes(engine, tensors, names, Reduction(), Compression.none, in_place)
        return self._start(engine, "grouped_broadcast" if len(lanes) > 1 else "broadcast", lanes, units, names,
                           Reduction(), finish, root=root, blocking=blocking)

    def _broadcast_one(self, tensor: Array, in_place: bool, root_rank: int, name: Optional[str],
                       process_set: ProcessSet, blocking: bool = False) -> Work:
        engine_of(process_set)  # without one nothing is counted
        return self._broadcast([tensor], in_place, [name_of("broadcast", name, process_set)], root_rank, process_set,
                               _only, blocking)

    def broadcast_async(self, tensor: Array, root_rank: int, name: Optional[str] = None,
                        process_set: ProcessSet = global_process_set) -> Work:
        """A new array on every rank with the values of rank root_rank, of the job, which is in the set. All ranks
        give the same shape and type."""
        return self._broadcast_one(tensor, False, root_rank, name, process_set)

    def broadcast(self, tensor: Array, root_rank: int, name: Optional[str] = None,
                  process_set: ProcessSet = global_process_set) -> Array:
        """broadcast_async() that waits."""
        return self._broadcast_one(tensor, False, root_rank, name, process_set, True).wait()

    def broadcast_async_(self, tensor: Array, root_rank: int, name: Optional[str] = None,
                         process_set: ProcessSet = global_process_set) -> Work:
        """broadcast_async() in place."""
        return self._broadcast_one(tensor, True, root_rank, name, process_set)

    def broadcast_(self, tensor: Array, root_rank: int, name: Optional[str] = None,
                   process_set: ProcessSet = global_process_set) -> Array:
        """broadcast_async_() that waits; returns the array."""
        return self._broadcast_one(tensor, True, root_rank, name, process_set, True).wait()

    def _alltoall(self, tensor: Array, splits: Any, name: Optional[str], process_set: ProcessSet,
                  blocking: bool = False) -> Work:
        engine = engine_of(process_set)
        names = [name_of("alltoall", name, process_set)]
        memory, rows = self._or_tell(engine, names, lambda: (self._arrays.memory(self._arrays.contiguous(tensor)),
                                                             None if splits is None else self._arrays.splits(splits)))
        if rows is not None and memory.shape and 0 <= sum(rows) < memory.shape[0]:
            memory = memory._replace(shape=(sum(rows), *memory.shape[1:]))  # Horovod sends the first rows too
        flight = engine._submit("all_to_all", names, [memory], [None], splits=rows, blocking=blocking)

        def finish(done: list[_Flight]) -> Any:
            output = Output(done[0])
            received = self._arrays.output(output, memory.owner)
            if splits is None:
                return received
            return received, self._arrays.received_splits(output.received_splits(), splits)

        return Work(engine, [flight], finish)

    def alltoall_async(self, tensor: Array, splits: Any = None, name: Optional[str] = None,
                       process_set: ProcessSet = global_process_set) -> Work:
        """Sends splits[r] rows to rank r; without splits every rank gets the same number. The result is the rows from
        rank 0, then those from rank 1, and so on; with splits also how many came from each rank."""
        return self._alltoall(tensor, splits, name, process_set)

    def alltoall(self, tensor: Array, splits: Any = None, name: Optional[str] = None,
                 process_set: ProcessSet = global_process_set) -> Any:
        """alltoall_async() that waits."""
        return self._alltoall(tensor, splits, name, process_set, True).wait()

    def barrier(self, process_set: ProcessSet = global_process_set) -> None:
        """Returns when every rank of the set has called it."""
        engine = engine_of(process_set)
        flight = engine._meet(name_of("barrier", None, process_set), blocking=True)
        Work(engine, [flight], lambda _: None).wait()

    # ---- works ----

    def synchronize(self, handle: Work) -> Any:
        """Waits for what an _async form returned, and returns its result."""
        return handle.wait()

    def poll(self, handle: Work) -> bool:
        """Whether the operation is done, successfully or not. Never blocks."""
        return handle.poll()


def _only(results: Sequence[Any]) -> Any:
    return results[0]
