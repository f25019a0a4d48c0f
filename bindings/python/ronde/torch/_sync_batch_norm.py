# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation over the batches of all ranks."""
from __future__ import annotations

from typing import Any, Optional

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from .._job import size
from .._library import Op
from .._operations import Operations
from ._functions import operations


def _moments(values: torch.Tensor) -> torch.Tensor:
    """Of each channel: count, mean and the sum of squared differences from it."""
    count = values[:, 0].numel()
    mean = values.transpose(0, 1).flatten(1).mean(1) if count else values.new_zeros(values.shape[1])
    spread = (values - _per_channel(mean, values)).square_().transpose(0, 1).flatten(1).sum(1)
    return torch.stack([torch.full_like(mean, count), mean, spread])


def _per_channel(vector: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return vector.view(1, -1, *[1] * (like.dim() - 2))


class _Normalize(torch.autograd.Function):
    """Half types are computed in f32."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weight: Optional[torch.Tensor], bias: Optional[torch.Tensor],
                eps: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        wide = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
        gathered = Operations.allgather(operations, _moments(wide).unsqueeze(0), "sync_batch_norm.moments")
        counts, means, spreads = gathered.unbind(1)
        count = counts.sum(0)
        mean = (counts * means).sum(0) / count
        variance = (spreads + counts * (means - mean).square()).sum(0) / count
        scale = torch.rsqrt(variance + eps)
        normal = (wide - _per_channel(mean, wide)) * _per_channel(scale, wide)
        ctx.save_for_backward(normal, weight, scale, count)
        result = normal if weight is None else normal * _per_channel(weight.to(wide.dtype), wide)
        result = result if bias is None else result + _per_channel(bias.to(wide.dtype), wide)
        ctx.mark_non_differentiable(mean, variance, count)
        return result.to(values.dtype), mean, variance, count

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> tuple[Optional[torch.Tensor], ...]:
        normal, weight, scale, count = ctx.saved_tensors
        wide = gradient.to(normal.dtype)
        of_bias = wide.transpose(0, 1).flatten(1).sum(1)
        of_weight = (wide * normal).transpose(0, 1).flatten(1).sum(1)
        of_values = None
        if ctx.needs_input_grad[0]:
            sums = Operations.allreduce(operations, torch.stack([of_bias, of_weight]), None, "sync_batch_norm.sums",
                                        op=Op.SUM) / count
            factor = scale if weight is None else scale * weight.to(normal.dtype)
            of_values = (wide - _per_channel(sums[0], wide) - normal * _per_channel(sums[1], wide))
            of_values = (of_values * _per_channel(factor, wide)).to(gradient.dtype)
        wanted = ctx.needs_input_grad
        return (of_values, of_weight.to(weight.dtype) if wanted[1] else None,
                of_bias.to(gradient.dtype if weight is None else weight.dtype) if wanted[2] else None, None)


class SyncBatchNorm(_BatchNorm):
    """torch.nn.BatchNorm1d, 2d or 3d whose mean and variance are those of the batches of all ranks together, in
    training; with the same arguments. Every rank calls it as often, in the same order. Batches may differ in size, and
    a rank's may be empty."""

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2 dimensions, and got {input.dim()}")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalises a batch of (N, C, ...)."""
        self._check_input_dim(input)
        if size() == 1 or not (self.training or self.running_mean is None):
            return super().forward(input)
        result, mean, variance, count = _Normalize.apply(input, self.weight, self.bias, self.eps)
        if self.training and self.track_running_stats:
            self._follow(mean, variance, count)
        return result

    @torch.no_grad()
    def _follow(self, mean: torch.Tensor, variance: torch.Tensor, count: torch.Tensor) -> None:
        self.num_batches_tracked += 1
        share = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = variance * (count / (count - 1).clamp(min=1))
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)
