# SPDX-License-Identifier: Apache-2.0
"""Tensors and reductions of torch.distributed, as the runtime takes them."""
from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, Iterable, Optional, Sequence

import torch
from torch._C._distributed_c10d import ReduceOp

from .._arrays import require_sum
from .._requests import Memory, Reduction
from .._library import InvalidArgument, Op, Status
from .._numpy import DTYPES, TYPES
from .._works import Output, _Flight
from ._tensors import NUMBERS_OF, contiguous, is_plain, require_host

_U8 = DTYPES.index("uint8")
_OPS = {"SUM": Op.SUM, "AVG": Op.AVERAGE, "PRODUCT": Op.PRODUCT, "MIN": Op.MIN, "MAX": Op.MAX, "BAND": Op.BAND,
        "BOR": Op.BOR, "BXOR": Op.BXOR, "PREMUL_SUM": Op.SUM}
_OF_BOOLS = {Op.SUM: Op.MAX, Op.PRODUCT: Op.MIN}  # "or" and "and", as torch has them for NCCL

_memcpy = ctypes.CDLL(None).memcpy  # unlike ctypes.memmove it lets go of the interpreter's lock
_memcpy.restype, _memcpy.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


@functools.lru_cache(maxsize=None)
def _name_of(kind: int) -> str:
    """Asked of PyTorch it takes as long as all the rest of a reduction."""
    return ReduceOp.RedOpType(kind).name


def has_factor(op: Any) -> bool:
    return _name_of(int(getattr(op, "op", op))) == "PREMUL_SUM"


def reduction_of(op: Any, tensor: torch.Tensor) -> Reduction:
    """How the runtime does a ReduceOp for tensors like this one."""
    name = _name_of(int(getattr(op, "op", op)))
    if name not in _OPS:
        raise InvalidArgument(f"{op}: the back end ronde has {', '.join(_OPS)}")
    how = _OPS[name]
    factor = _factor(op) if has_factor(op) else 1.0
    if tensor.dtype is torch.bool:
        how = _OF_BOOLS.get(how, how)
    require_sum(tensor, how)
    return Reduction(how, prescale=factor)


def _factor(op: ReduceOp) -> float:
    """The factor of a PREMUL_SUM, which only its pickled form gives away."""
    try:
        factor = op.__getstate__()[1]
    except (AttributeError, TypeError, IndexError, RuntimeError):
        raise InvalidArgument(f"PREMUL_SUM: PyTorch {torch.__version__} does not let a back end in Python read its "
                              "factor: multiply the tensor before", Status.UNSUPPORTED) from None
    if isinstance(factor, torch.Tensor) and factor.numel() != 1:
        raise InvalidArgument("PREMUL_SUM with a factor for each element: multiply the tensor before",
                              Status.UNSUPPORTED)
    return float(factor)


def require_numbers(tensor: torch.Tensor) -> None:
    """Raises InvalidArgument where the tensor's type cannot be reduced."""
    if tensor.dtype not in NUMBERS_OF:
        raise InvalidArgument(f"a reduction of tensors of type {tensor.dtype}: {TYPES}; convert it with .to()")


def require_alike(tensors: Iterable[torch.Tensor], one: torch.Tensor) -> None:
    """Raises InvalidArgument unless all are dense tensors on the CPU of the type of `one`."""
    require_host(one)
    for tensor in tensors:
        require_host(tensor)
        if tensor.dtype is not one.dtype:
            raise InvalidArgument(f"tensors of types {tensor.dtype} and {one.dtype} in one operation")


class Landing:
    """Plain memory of a tensor, from which it is filled where it is not plain itself."""

    def __init__(self, tensor: torch.Tensor, load: bool) -> None:
        """load: with the tensor's values; else they are not specified."""
        self.tensor = tensor
        self.memory = contiguous(tensor) if load or is_plain(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype)

    def land(self) -> torch.Tensor:
        """Puts the result where it belongs, and returns the tensor."""
        if self.memory is not self.tensor:
            with torch.no_grad():
                self.tensor.copy_(self.memory)
        return self.tensor


def described(tensor: torch.Tensor, shape: Optional[Sequence[int]] = None) -> Memory:
    """A plain tensor for the runtime; `shape` is in elements, as its own is. Types that it lacks are moved as bytes."""
    dtype, parts = NUMBERS_OF.get(tensor.dtype, (_U8, (tensor.element_size(),)))
    shape = tuple(tensor.shape) if shape is None else tuple(shape)
    if parts:
        shape = (*shape[:-1], shape[-1] * parts[0]) if shape else parts
    return Memory(tensor.data_ptr(), shape, dtype, tensor)


def joined(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Their elements in one flat tensor."""
    return torch.cat([contiguous(tensor).detach().reshape(-1) for tensor in tensors])


class Received:
    """The result of an allgather or an all-to-all that is done."""

    def __init__(self, flight: _Flight) -> None:
        self._name = flight.name
        self._output = Output(flight)
        self.size_bytes = math.prod(self._output.shape) * _BYTES[self._output.dtype]

    def require_rows(self, expected: Sequence[int]) -> "Received":
        """Raises InvalidArgument unless each rank has sent as many rows of an all-to-all as were expected of it."""
        received = self._output.received_splits()
        if list(received) != list(expected):
            raise InvalidArgument(f"'{self._name}': the ranks have sent {list(received)} rows, and {list(expected)} "
                                  "were expected here", tensor=self._name)
        return self

    def into(self, outputs: Sequence[Landing]) -> list[torch.Tensor]:
        """Copies it, part by part, into the outputs."""
        sizes = [landing.memory.numel() * landing.memory.element_size() for landing in outputs]
        if sum(sizes) != self.size_bytes:
            raise InvalidArgument(f"'{self._name}': the ranks have sent {self.size_bytes} bytes, and the outputs here "
                                  f"have room for {sum(sizes)}", tensor=self._name)
        address = self._output.address
        for landing, size in zip(outputs, sizes):
            if size and landing.memory.data_ptr() != address:  # else it has come there by itself
                _memcpy(landing.memory.data_ptr(), address, size)
            address += size
        return [landing.land() for landing in outputs]

    def rows_like(self, like: torch.Tensor) -> torch.Tensor:
        """It as a new tensor with rows of the shape of another one's."""
        per_row = math.prod(like.shape[1:]) * like.element_size()
        rows = torch.empty((self.size_bytes // per_row if per_row else 0, *like.shape[1:]), dtype=like.dtype)
        return self.into([Landing(rows, load=False)])[0]


_BYTES = (1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1)  # of a number of each ronde_dtype


def assign_sparse(tensor: torch.Tensor, how: Reduction, size: int, values: torch.Tensor,
                  indices: torch.Tensor) -> torch.Tensor:
    if how.prescale != 1:
        values = values * how.prescale
    if how.op is how.op.AVERAGE:
        values = values / size
    with torch.no_grad():
        return tensor.copy_(torch.sparse_coo_tensor(indices, values, tensor.shape).coalesce())
