# SPDX-License-Identifier: Apache-2.0
"""What a work says of itself, where PyTorch does not ask the back end.

PyTorch 2.15 hands a program a holder of a work that a back end in Python has made. It passes on wait() and get_future()
alone: is_completed() is False for ever, so that a loop around it never ends, and is_success() is True of one that
failed; and it knows no _source_rank(). Here these also look at the work's future. Of other back ends' works they say
what they have always said: those that are not done are asked once more, to the same end.
"""
from __future__ import annotations

from typing import Any, Optional

import torch
from torch._C._distributed_c10d import Work


def _future(work: Work) -> Optional[torch.futures.Future]:
    """That of a work that is done, if it has one. One of GPUs is completed when the work is enqueued: it says nothing."""
    try:
        future = work.get_future()
    except RuntimeError:
        return None
    if not future.done():
        return None
    try:
        values = future.value()
    except Exception:
        return future  # it has failed
    return future if all(getattr(one, "is_cpu", False) for one in values or ()) else None


def _error(work: Work) -> Optional[Exception]:
    future = _future(work)
    try:
        if future is not None:
            future.value()
    except Exception as error:
        return error
    return None


_sources: Any = None  # by the tensor into which a message was received last: who had sent it


def note_source(tensor: torch.Tensor, rank: int) -> None:
    if _sources is not None:
        _sources[tensor] = rank


def install() -> None:
    """Does nothing a second time."""
    global _sources  # pylint: disable=global-statement
    is_completed, is_success, exception, result = Work.is_completed, Work.is_success, Work.exception, Work.result
    source_rank = Work._source_rank
    if getattr(is_completed, "__module__", "") == __name__:
        return

    from torch.utils.weak import WeakTensorKeyDictionary  # pylint: disable=import-outside-toplevel; 1.13 has none
    _sources = WeakTensorKeyDictionary()

    def completed(self: Work) -> bool:
        return is_completed(self) or _future(self) is not None

    def success(self: Work) -> bool:
        return is_success(self) and _error(self) is None

    def error(self: Work) -> Any:
        return exception(self) or _error(self)

    def results(self: Work) -> list[torch.Tensor]:
        try:
            return result(self)
        except RuntimeError:
            future = _future(self)
            if future is None:
                raise
            return future.value()

    def source(self: Work) -> int:
        try:
            return source_rank(self)
        except RuntimeError:
            rank = _sources.get((self.get_future().wait() or [None])[0])
            if rank is None:
                raise
            return rank

    Work._source_rank = source
    Work.is_completed, Work.is_success, Work.exception, Work.result = completed, success, error, results
