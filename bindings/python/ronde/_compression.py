# SPDX-License-Identifier: Apache-2.0
"""What travels between the ranks in place of f32."""
from __future__ import annotations

from typing import Any


class Compressor:
    """Horovod's interface: compress() before an operation, decompress() after it; a class of yours may do both.

    wire: a ronde_compression of ronde.h, with which the runtime itself sends f32 in 16 bits: contributions are rounded
    once, and sums formed in f32. Where that is possible, compress() is not called.
    """

    wire = 0

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns what is sent, and what decompress() needs to know."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the tensor in its own type."""
        return tensor


class NoneCompressor(Compressor):
    """Everything is sent as it is."""


class BF16Compressor(Compressor):
    """f32 is sent as bf16; other types as they are."""

    wire = 1


def _is_wider_than_16_bits(dtype: Any) -> bool:
    return str(dtype).rpartition(".")[2] in ("float32", "float64")


class FP16Compressor(Compressor):
    """f32 and f64 are sent as f16, whose largest number is 65504; other types as they are."""

    wire = 2

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Returns the tensor as f16, and its type."""
        if not _is_wider_than_16_bits(tensor.dtype):
            return tensor, None
        return (tensor.half() if hasattr(tensor, "half") else tensor.astype("float16")), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Returns the tensor in the type `ctx`."""
        if ctx is None:
            return tensor
        return tensor.to(ctx) if hasattr(tensor, "to") else tensor.astype(ctx)


class Compression:
    """Compression.none, .fp16 and .bf16, for the operations that reduce."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
