# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks of a group of torch.distributed."""
from __future__ import annotations

import time
from typing import Any, Callable, Sequence

import torch

from .. import _messages
from .._library import InvalidArgument
from .._works import _Flight
from ._group_arguments import Tensors, only_of
from ._group_core import GroupCore
from ._group_tensors import Landing, described
from ._group_work import GroupWork
from ._tensors import contiguous, require_host
from ._work_answers import note_source


class PairWork(GroupWork):
    """A message that is being sent or received."""

    _peer: int
    _absence: str  # what the other rank has not done, where it is late
    _sources: Sequence[int] = ()  # of a receive that has ended well

    def _source_rank(self) -> int:
        """The rank that has sent what was received; waits for it."""
        self.wait()
        return self._sources[0] if self._sources else self._peer

    source_rank = _source_rank

    def _wait_until(self, until: float) -> list[torch.Tensor]:
        return self._work.wait(max(0.0, until - time.monotonic()))

    def _absent(self) -> str:
        return self._absence


class GroupPairs(GroupCore):
    """send and recv, of which torch.distributed makes isend, irecv, batch_isend_irecv and send_object_list. They are no
    operations of the group: each has the two ranks alone, and they have an order for each pair and tag."""

    def send(self, tensors: Tensors, destination: int, tag: int) -> PairWork:
        tensor = only_of(tensors)
        require_host(tensor)
        self._require_rank(destination)
        name = f"{self._label}/send to {destination}"
        flight = _messages.send(self._engine, destination, tag, described(contiguous(tensor)), name)
        return self._begin_pair(flight, lambda _: [tensor], destination, f"rank {destination} had not received it")

    def recv(self, tensors: Tensors, source: int, tag: int) -> PairWork:
        self._require_rank(source)
        return self._receive(tensors, source, tag)

    def recv_anysource(self, tensors: Tensors, tag: int) -> PairWork:
        return self._receive(tensors, _messages.ANY_RANK, tag)

    def _receive(self, tensors: Tensors, source: int, tag: int) -> PairWork:
        tensor = only_of(tensors)
        require_host(tensor)
        landing = Landing(tensor, load=False)
        sender = "any rank" if source == _messages.ANY_RANK else str(source)
        name = f"{self._label}/recv from {sender}"
        flight = _messages.receive(self._engine, source, tag, described(landing.memory), name)
        absence = "no rank had sent it" if source == _messages.ANY_RANK else f"rank {source} had not sent it"

        sources: list[int] = []

        def finish(flights: list[_Flight]) -> list[torch.Tensor]:
            sources.append(_messages.source_of(flights[0]))
            note_source(tensor, sources[0])
            return [landing.land()]

        work = self._begin_pair(flight, finish, source, absence)
        work._sources = sources
        return work

    def _require_rank(self, rank: Any) -> None:
        if not 0 <= rank < self._size:
            raise InvalidArgument(f"a message to or from rank {rank}: the group has the ranks 0 to {self._size - 1}")

    def _begin_pair(self, flight: _Flight, finish: Callable[[list[_Flight]], list[torch.Tensor]], peer: int,
                    absence: str) -> PairWork:
        work = PairWork(self._shared, 0, [flight], finish, self._timeout)
        work._peer, work._absence = peer, absence
        self._keep(work)
        return work

    # What torch.distributed puts around several of them, for which there is nothing to do.
    def _start_coalescing(self, *_: Any) -> None:
        pass

    def _end_coalescing(self, *_: Any) -> None:
        pass
