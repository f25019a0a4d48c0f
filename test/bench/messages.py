# SPDX-License-Identifier: Apache-2.0
"""The rows of messages between two ranks: one way, half of there and back. They decide nothing."""
from report import MIB, beside, size_text


def rows(bench):
    times = bench.programs.messages("8,4K,64K,1M,64M")
    for size in sorted({size for size, _ in times}):
        name = f"message one way, {size_text(size)}"
        yield beside(f"{name}, to MPI", times, size, "mpi")
        if size >= MIB:
            yield beside(f"{name}, to memcpy", times, size, "memcpy")
            yield beside(f"{name}, to one out of a Buffer", times, size, "ronde-buffer")
            yield beside(f"{name}, to the kernel's copy", times, size, "ronde-kernel")
