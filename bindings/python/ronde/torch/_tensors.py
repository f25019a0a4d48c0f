# SPDX-License-Identifier: Apache-2.0
"""PyTorch's tensors, in host memory and on GPUs, as tensors of the runtime."""
from __future__ import annotations

import contextlib
import math
from typing import Any, Optional, Sequence

import numpy
import torch

from .._arrays import Arrays
from .._library import Error, InvalidArgument, Status
from .._numpy import DTYPES, NUMBERS, TYPES, lent_array, memory_of
from .._requests import Memory
from .._works import Output

NUMBERS_OF = {getattr(torch, name): numbers for name, numbers in NUMBERS.items() if hasattr(torch, name)}
_BF16 = DTYPES.index("bfloat16")


def require_host(array: torch.Tensor) -> None:
    """Raises InvalidArgument unless the tensor is dense, on the CPU, and has its numbers there."""
    if array.device.type != "cpu":
        raise InvalidArgument(f"a tensor on {array.device}: the back end ronde takes tensors in host memory; "
                              "use .cpu(), a group with the back end nccl, or ronde.torch's own operations")
    require_dense(array)


def require_dense(array: torch.Tensor) -> None:
    """Raises InvalidArgument unless the tensor is dense, on the CPU or a GPU, and has its numbers there."""
    if array.device.type not in ("cpu", "cuda"):
        raise InvalidArgument(f"a tensor on {array.device}: Ronde takes tensors in host memory and on CUDA's devices; "
                              "use .cpu()")
    if array.layout is not torch.strided:
        raise InvalidArgument(f"a tensor of layout {array.layout}: use sparse_allreduce_async() or .to_dense()")
    if array.is_quantized:
        raise InvalidArgument(f"a quantized tensor of type {array.dtype}: send .int_repr(), and its scale")


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether its memory says all of it: row-major, and neither conjugated, negated nor made zeros lazily."""
    return tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor())


def _like(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """Where it is; in host memory where Ronde does not go."""
    return torch.empty(shape, dtype=tensor.dtype, device=tensor.device if tensor.is_cuda else "cpu")


class _LentByDevice:
    """Bytes of a GPU as PyTorch sees them; what it holds keeps that memory alive."""

    def __init__(self, address: int, count: int, owner: Any, device: torch.device) -> None:
        self.device = device
        self.__cuda_array_interface__ = {"version": 3, "data": (address, False), "shape": (count,), "typestr": "|u1",
                                         "strides": None}
        self.owner = owner

    def __del__(self) -> None:
        # The runtime frees it in the default stream, which first waits for who reads it in the stream of this moment.
        with contextlib.suppress(Exception):  # PyTorch may be gone
            default, current = torch.cuda.default_stream(self.device), torch.cuda.current_stream(self.device)
            if current != default:
                default.wait_stream(current)


def _used_here(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor; its memory is not used again before what the current stream does next is over."""
    if tensor.is_cuda:
        tensor.record_stream(torch.cuda.current_stream(tensor.device))
    return tensor


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if it is plain, else a copy that is. Nothing else may lead to an address that is read."""
    return tensor if is_plain(tensor) else _like(tensor, tensor.shape).copy_(tensor.detach())


def places_of(tensor: torch.Tensor, indices: torch.Tensor, rank: int) -> torch.Tensor:
    """Where the values of a sparse tensor are, a row for each, to be gathered; before them how many, whose, its shape."""
    rows = indices.t()
    if rows.shape[1] == 0:  # all of it is dense, and has its shape in the values
        return contiguous(rows)
    head = rows.new_zeros((3, rows.shape[1]))
    head[0, 0], head[1, 0] = rows.shape[0], rank
    head[2] = rows.new_tensor(tensor.shape[:rows.shape[1]])
    return torch.cat([head, rows])


def gathered_places(gathered: torch.Tensor, tensor: torch.Tensor, name: str) -> torch.Tensor:
    """The indices of what all ranks have given with places_of(). Raises Error on all of them where shapes differ: what
    lies within the smaller one would be summed at places that mean something else."""
    if gathered.shape[1] == 0:
        return gathered.t()
    shapes: dict[int, list[int]] = {}  # by rank, of those that have not joined
    parts, at = [], 0
    while at < gathered.shape[0]:
        begin, (count, rank) = at + 3, gathered[at:at + 2, 0].tolist()
        shapes[rank] = gathered[at + 2].tolist()
        at = begin + count
        parts.append(gathered[begin:at])
    first, expected = next(iter(shapes.items()))
    for rank, shape in shapes.items():
        if shape != expected:
            dense = list(tensor.shape[gathered.shape[1]:])
            raise Error(f"'{name}': the ranks disagree: rank {first} has a sparse tensor of shape {expected + dense}, "
                        f"rank {rank} one of {shape + dense}. Make the shapes agree", Status.MISMATCH, rank, tensor=name)
    return torch.cat(parts).t()


class TorchArrays(Arrays[torch.Tensor]):
    """Dense tensors on the CPU, or on the GPU of this rank's engine."""

    def memory(self, array: torch.Tensor) -> Memory:
        numbers = NUMBERS_OF.get(array.dtype)
        if numbers is None:
            raise InvalidArgument(f"tensors of type {array.dtype}: {TYPES}; convert it with .to()")
        memory = memory_of(array.data_ptr(), array.shape, numbers, array)
        if array.device.type != "cuda":
            return memory
        stream = torch.cuda.current_stream(array.device).cuda_stream  # what is in it so far writes the tensor
        return memory._replace(device=array.device.index, stream=stream)

    def contiguous(self, array: Any) -> torch.Tensor:
        if not isinstance(array, torch.Tensor):
            raise InvalidArgument(f"a {type(array).__name__} is no torch.Tensor: use torch.as_tensor(), or the "
                                  "operations of `ronde` for NumPy arrays")
        require_dense(array)
        return contiguous(array)

    def require_writable(self, array: torch.Tensor) -> None:
        """Tensors always are."""

    def empty(self, like: torch.Tensor, rows: Optional[int] = None) -> torch.Tensor:
        shape = tuple(like.shape) if rows is None else (rows, *like.shape[1:])
        return _like(like, shape)

    def assign(self, target: torch.Tensor, values: torch.Tensor) -> None:
        with torch.no_grad():
            target.copy_(_used_here(values))

    def scaled(self, array: torch.Tensor, factor: float) -> torch.Tensor:
        return (_used_here(array).detach().double() * factor).to(array.dtype)

    def output(self, output: Output, like: torch.Tensor) -> torch.Tensor:
        if like.device.type != "cpu":
            shape = output.shape[:-1] if like.is_complex() else output.shape
            count = math.prod(shape) * like.element_size()
            if count == 0:
                return _like(like, shape)
            lent = _LentByDevice(output.address, count, output, like.device)
            return torch.as_tensor(lent, device=like.device).view(like.dtype).reshape(shape)
        if output.dtype == _BF16:  # NumPy lends the bits
            bits = lent_array(output.address, output.shape, numpy.dtype("int16"), output)
            return torch.from_numpy(bits).view(torch.bfloat16)
        shape, name = output.shape, DTYPES[output.dtype]
        if like.is_complex():
            shape, name = shape[:-1], str(like.dtype).rpartition(".")[2]
        return torch.from_numpy(lent_array(output.address, shape, numpy.dtype(name), output))

    def splits(self, splits: Any) -> list[int]:
        splits = torch.as_tensor(splits)
        if splits.dtype not in (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8) or splits.dim() != 1:
            raise InvalidArgument(f"splits are a list of integers, one for each rank, and not {splits.dim()}-"
                                  f"dimensional of type {splits.dtype}")
        return splits.tolist()

    def received_splits(self, splits: list[int], like: Any) -> torch.Tensor:
        return torch.tensor(splits, dtype=torch.int32)
