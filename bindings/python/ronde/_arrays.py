# SPDX-License-Identifier: Apache-2.0
"""What operations ask of a kind of array, and the way of one array through an operation that reduces."""
from __future__ import annotations

from typing import Any, Callable, Generic, Optional, TypeVar

from ._compression import Compression, Compressor
from ._library import InvalidArgument, Op
from ._requests import Memory, Reduction
from ._works import Output

Array = TypeVar("Array")
_F16, _F32 = 8, 10  # of ronde_dtype; integers are below


def require_sum(array: Any, op: Op) -> None:
    """Raises InvalidArgument for complex numbers that are to be reduced in another way."""
    if op not in (Op.SUM, Op.AVERAGE) and "complex" in str(array.dtype):
        raise InvalidArgument(f"{op.name} of {array.dtype}: complex numbers can be summed and averaged")


class Arrays(Generic[Array]):
    """What a kind of array must be able to do."""

    def memory(self, array: Array) -> Memory:
        """Its memory; the array is contiguous."""
        raise NotImplementedError

    def contiguous(self, array: Any) -> Array:
        """The array itself if it is dense and row-major, else a copy that is."""
        raise NotImplementedError

    def require_writable(self, array: Array) -> None:
        """Raises InvalidArgument for an array that nothing may be written into."""
        raise NotImplementedError

    def empty(self, like: Array, rows: Optional[int] = None) -> Array:
        """A new array of the same type and shape, or with another first dimension."""
        raise NotImplementedError

    def assign(self, target: Array, values: Array) -> None:
        """Copies values into an array of the same shape."""
        raise NotImplementedError

    def scaled(self, array: Array, factor: float) -> Array:
        """A new array of integers: the products, formed in f64, truncated."""
        raise NotImplementedError

    def output(self, output: Output, like: Array) -> Array:
        """The result of a work, where it lies, in the type of what was sent."""
        raise NotImplementedError

    def splits(self, splits: Any) -> list[int]:
        """Numbers of rows; raises InvalidArgument where they are no integers."""
        raise NotImplementedError

    def received_splits(self, splits: list[int], like: Any) -> Any:
        """Received splits as alltoall() returns them."""
        raise NotImplementedError


class Lane(Generic[Array]):
    """One tensor on its way through an operation that reduces: what is sent, where the result comes, and what is
    done before and after."""

    def __init__(self, arrays: Arrays[Array], tensor: Array, how: Reduction, compression: type[Compressor],
                 in_place: bool, rows: Optional[int] = None) -> None:
        self.arrays = arrays
        source = arrays.contiguous(tensor)
        memory = arrays.memory(source)
        require_sum(source, how.op)
        if in_place:
            arrays.require_writable(tensor)
        where_it_is = in_place and source is tensor
        # In the runtime, where it can: that is cheaper, and rounds less often.
        self.on_wire = compression.wire if memory.dtype == _F32 else 0
        self.decompress: Optional[Callable[[Array], Array]] = None
        if not self.on_wire and compression is not Compression.none:
            packed, context = compression.compress(source)
            where_it_is = where_it_is and packed is source
            source = arrays.contiguous(packed)
            memory = arrays.memory(source)
            self.decompress = lambda result: compression.decompress(result, context)
        self.dtype = memory.dtype
        self.integers = self.dtype < _F16
        if self.integers and how.prescale != 1:
            source = arrays.scaled(source, how.prescale)
            memory = arrays.memory(source)
        self.postscale = how.postscale if self.integers else 1
        self.tensor: Optional[Array] = tensor if in_place else None
        self.target: Array = tensor if where_it_is else arrays.empty(source, rows)
        in_the_target = self.target is source
        self.input: Optional[Memory] = None if in_the_target else memory
        self.output: Memory = memory if in_the_target else arrays.memory(self.target)

    def how(self, how: Reduction) -> Reduction:
        """The reduction as the runtime does it."""
        factors = (1.0, 1.0) if self.integers else (float(how.prescale), float(how.postscale))
        return Reduction(how.op, *factors, self.on_wire, how.weight)

    def result(self) -> Array:
        result = self.target
        if self.postscale != 1:
            result = self.arrays.scaled(result, self.postscale)
        if self.decompress is not None:
            result = self.decompress(result)
        if self.tensor is not None and result is not self.tensor:
            self.arrays.assign(self.tensor, result)
            result = self.tensor
        return result
