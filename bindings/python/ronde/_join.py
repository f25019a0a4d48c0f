# SPDX-License-Identifier: Apache-2.0
"""The end of a rank's steps where the ranks have other numbers of them."""
from __future__ import annotations

from ._job import current_engine, number_from, numbers
from ._objects import allgather_object


def join(device: int = -1) -> int:
    """This rank has no more batches: it takes part with neutral elements in what the others do, until all ranks have
    joined, and returns the last of them, the same on every rank. Averages go over the ranks that have not joined, or,
    with RONDE_JOIN_AVERAGE=all, over all as Horovod's do. Until then this rank submits nothing; a broadcast from it,
    and what lies in the memory of GPUs, is an error on the others. device: ignored."""
    last = current_engine().join().wait()
    number_from(allgather_object(numbers(), "numbers after a join"))
    return last
