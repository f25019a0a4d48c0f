# SPDX-License-Identifier: Apache-2.0
"""Operations through which gradients flow. What a gradient is, is Horovod's convention: see each operation."""
from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import torch

from .._compression import Compression, Compressor
from .._library import Op
from .._operations import Operations, _op_of
from .._process_sets import ProcessSet, engine_of, global_process_set, rank_in

Tensors = Sequence[torch.Tensor]


class _Through(torch.autograd.Function):
    """Calls `forth` with tensors, and `back` with the gradients of its results."""

    @staticmethod
    def forward(ctx: Any, forth: Callable[[Tensors], Tensors], back: Callable[[Tensors], Tensors],
                *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.back = back
        return tuple(forth([tensor.detach() for tensor in tensors]))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Optional[torch.Tensor], ...]:
        return (None, None, *ctx.back(gradients))


def _is_recorded(tensors: Tensors) -> bool:
    return torch.is_grad_enabled() and any(isinstance(one, torch.Tensor) and one.requires_grad for one in tensors)


def _grad_name(name: Optional[str]) -> Optional[str]:
    return None if name is None else f"{name}.grad"


def _require_linear(op: Op) -> None:
    if op not in (Op.AVERAGE, Op.SUM):
        raise NotImplementedError(f"the gradient of an operation with {op.name}: only Average and Sum have one")


def _require_no_weight(weight: Optional[float]) -> None:
    if weight is not None:
        raise NotImplementedError("the gradient of an average by weights: detach the tensor, or leave weight out")


class TorchOperations(Operations[torch.Tensor]):
    """The operations of `ronde`, on tensors. Gradients flow through the forms that wait and are not in place."""

    def allreduce(self, tensor: torch.Tensor, average: Optional[bool] = None, name: Optional[str] = None,
                  compression: type[Compressor] = Compression.none, op: Optional[Op] = None,
                  prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                  process_set: ProcessSet = global_process_set, *,
                  weight: Optional[float] = None) -> torch.Tensor:
        """allreduce_async() that waits; returns the new tensor. Its gradient is reduced in the same way; with a weight
        it has none."""
        if not _is_recorded([tensor]):
            return super().allreduce(tensor, average, name, compression, op, prescale_factor, postscale_factor,
                                     process_set, weight=weight)
        _require_no_weight(weight)
        return self.grouped_allreduce([tensor], average, name, compression, op, prescale_factor, postscale_factor,
                                      process_set)[0]

    def grouped_allreduce(self, tensors: Tensors, average: Optional[bool] = None, name: Optional[str] = None,
                          compression: type[Compressor] = Compression.none, op: Optional[Op] = None,
                          prescale_factor: float = 1.0, postscale_factor: float = 1.0,
                          process_set: ProcessSet = global_process_set, *,
                          weight: Optional[float] = None) -> list[torch.Tensor]:
        """grouped_allreduce_async() that waits. Gradients are reduced in the same way; with a weight there are
        none."""
        if _is_recorded(tensors):
            _require_no_weight(weight)
        reduction = _op_of(average, op)

        def forth(inputs: Tensors, its_name: Optional[str] = name) -> list[torch.Tensor]:
            return Operations.grouped_allreduce(self, inputs, None, its_name, compression, reduction, prescale_factor,
                                                postscale_factor, process_set, weight=weight)

        def back(gradients: Tensors) -> list[torch.Tensor]:
            _require_linear(reduction)
            return forth(gradients, _grad_name(name))

        return list(_Through.apply(forth, back, *tensors)) if _is_recorded(tensors) else forth(tensors)

    def reducescatter(self, tensor: torch.Tensor, name: Optional[str] = None,
                      compression: type[Compressor] = Compression.none, op: Op = Op.AVERAGE,
                      process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                      postscale_factor: float = 1.0, *, weight: Optional[float] = None) -> torch.Tensor:
        """reducescatter_async() that waits. Its gradient is gathered, and with Sum multiplied by the ranks."""
        return self.grouped_reducescatter([tensor], name, compression, op, process_set, prescale_factor,
                                          postscale_factor, weight=weight)[0]

    def grouped_reducescatter(self, tensors: Tensors, name: Optional[str] = None,
                              compression: type[Compressor] = Compression.none, op: Op = Op.AVERAGE,
                              process_set: ProcessSet = global_process_set, prescale_factor: float = 1.0,
                              postscale_factor: float = 1.0, *,
                              weight: Optional[float] = None) -> list[torch.Tensor]:
        """grouped_reducescatter_async() that waits. Gradients are gathered, and with Sum multiplied by the ranks."""
        if _is_recorded(tensors):
            _require_no_weight(weight)

        def forth(inputs: Tensors) -> list[torch.Tensor]:
            return Operations.grouped_reducescatter(self, inputs, name, compression, op, process_set, prescale_factor,
                                                    postscale_factor, weight=weight)

        def back(gradients: Tensors) -> list[torch.Tensor]:
            _require_linear(op)
            factor = prescale_factor * postscale_factor * (engine_of(process_set).size if op == Op.SUM else 1)
            gathered = Operations.grouped_allgather(self, gradients, _grad_name(name), process_set)
            return gathered if factor == 1 else [one * factor for one in gathered]

        return list(_Through.apply(forth, back, *tensors)) if _is_recorded(tensors) else forth(tensors)

    def allgather(self, tensor: torch.Tensor, name: Optional[str] = None,
                  process_set: ProcessSet = global_process_set) -> torch.Tensor:
        """allgather_async() that waits. Its gradient is averaged, and each rank takes that of its rows."""
        if not _is_recorded([tensor]):
            return super().allgather(tensor, name, process_set)
        return self.grouped_allgather([tensor], name, process_set)[0]

    def grouped_allgather(self, tensors: Tensors, name: Optional[str] = None,
                          process_set: ProcessSet = global_process_set) -> list[torch.Tensor]:
        """grouped_allgather_async() that waits. Gradients are averaged, and each rank takes those of its rows."""
        def forth(inputs: Tensors) -> list[torch.Tensor]:
            return Operations.grouped_allgather(self, inputs, name, process_set)

        def back(gradients: Tensors) -> list[torch.Tensor]:
            rows = torch.tensor([[tensor.shape[0] for tensor in tensors]])
            of_rows = None if name is None else f"{_grad_name(name)}.rows"
            all_rows = Operations.allgather(self, rows, of_rows, process_set)
            before = all_rows[:engine_of(process_set).rank].sum(0).tolist()
            averages = Operations.grouped_allreduce(self, gradients, None, _grad_name(name), op=Op.AVERAGE,
                                                    process_set=process_set)
            return [average.narrow(0, start, tensor.shape[0])
                    for average, start, tensor in zip(averages, before, tensors)]

        return list(_Through.apply(forth, back, *tensors)) if _is_recorded(tensors) else forth(tensors)

    def broadcast(self, tensor: torch.Tensor, root_rank: int, name: Optional[str] = None,
                  process_set: ProcessSet = global_process_set) -> torch.Tensor:
        """broadcast_async() that waits. Its gradient is the average on the root, and zero on other ranks."""
        def forth(inputs: Tensors) -> list[torch.Tensor]:
            return [Operations.broadcast(self, inputs[0], root_rank, name, process_set)]

        def back(gradients: Tensors) -> list[torch.Tensor]:
            average = Operations.allreduce(self, gradients[0], None, _grad_name(name), op=Op.AVERAGE,
                                           process_set=process_set)
            is_root = engine_of(process_set).rank == rank_in(process_set, root_rank)
            return [average if is_root else torch.zeros_like(average)]

        return _Through.apply(forth, back, tensor)[0] if _is_recorded([tensor]) else forth([tensor])[0]

    def alltoall(self, tensor: torch.Tensor, splits: Any = None, name: Optional[str] = None,
                 process_set: ProcessSet = global_process_set) -> Any:
        """alltoall_async() that waits. Its gradient goes back to where the rows came from."""
        rows = tensor.shape[0] if isinstance(tensor, torch.Tensor) and tensor.dim() > 0 else 1
        size = engine_of(process_set).size
        if not _is_recorded([tensor]) or (splits is None and rows % size != 0):  # the latter is refused
            return super().alltoall(tensor, splits, name, process_set)
        sent = [rows // size] * size if splits is None else self._arrays.splits(splits)
        received: list[torch.Tensor] = []

        def forth(inputs: Tensors) -> list[torch.Tensor]:
            output, counts = Operations.alltoall(self, inputs[0], sent, name, process_set)
            received.append(counts)
            return [output]

        def back(gradients: Tensors) -> list[torch.Tensor]:
            gradient, _ = Operations.alltoall(self, gradients[0], received[0], _grad_name(name), process_set)
            unsent = tensor.new_zeros((rows - gradient.shape[0], *tensor.shape[1:]))
            return [torch.cat([gradient, unsent])]

        output = _Through.apply(forth, back, tensor)[0]
        return output if splits is None else (output, received[0])
