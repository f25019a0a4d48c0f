# SPDX-License-Identifier: Apache-2.0
"""The operations of a group of torch.distributed, over those of the runtime."""
from __future__ import annotations

import datetime
import math
from typing import Any, Callable, Optional, Sequence

import torch

from .._kept_request import KeptRequest
from .._library import InvalidArgument
from .._requests import Memory
from .._works import _Flight
from ._group_arguments import (Tensors, counts_of, list_of, matrix_of, only_of, op_of, require_each, root_of,
                               splits_of)
from ._group_buckets import Buckets
from ._group_core import Finish
from ._group_pairs import GroupPairs
from ._group_tensors import (Landing, Received, assign_sparse, described, has_factor, joined, reduction_of,
                             require_alike, require_numbers)
from ._group_work import GroupWork, Started
from ._tensors import contiguous, gathered_places, is_plain, places_of, require_host


_REQUESTS = 256  # that a group keeps
_STRIDED = torch.strided


def _may_be_kept(tensor: torch.Tensor) -> bool:
    return tensor.is_cpu and tensor.layout is _STRIDED and not tensor.is_quantized and is_plain(tensor)


def _number_of(op: Any) -> Optional[int]:
    try:
        return int(getattr(op, "op", op))
    except (TypeError, ValueError):
        return None


def _of_sums(operation: str, op: Any, like: torch.Tensor, memory: Memory,
             splits: Optional[Sequence[int]] = None) -> Optional[KeptRequest]:
    """None where the reduction has a factor, which is this call's alone."""
    require_numbers(like)
    reduction = reduction_of(op, like)
    return None if has_factor(op) else KeptRequest(operation, memory, reduction, splits)


class GroupOperations(GroupPairs):
    """Every operation that torch.distributed knows, by the names that PyTorch calls."""

    def _open(self, *arguments: Any) -> None:
        super()._open(*arguments)
        self._requests: dict[Any, KeptRequest] = {}
        self._buckets = Buckets()

    def _start_each(self, opts: Any, outputs: Sequence[Any], inputs: Sequence[torch.Tensor],
                    part: Callable[..., Finish]) -> GroupWork:
        """part(flights, name, output, input) starts the operation of each pair."""

        def submit(flights: list[_Flight], *names: str) -> Finish:
            if len(outputs) != len(inputs):
                raise InvalidArgument(f"{len(outputs)} outputs for {len(inputs)} inputs: give as many of both")
            ends = [part(flights, *pair) for pair in zip(names, outputs, inputs)]
            return lambda done: [tensor for end in ends for tensor in end(done)]

        return self._start(opts, submit, len(inputs))

    # ---- reductions ----

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Started:
        listed = list_of(tensors)
        if len(listed) == 1:
            tensor = listed[0]
            if tensor.layout is torch.sparse_coo:
                return self._allreduce_sparse(tensor, opts)
            kept = self._request_for(tensor, op_of(opts))
            if kept is not None:
                self._buckets.take(self._engine, tensor)
                return self._start_kept(opts, kept, tensor)
        return self.allreduce_coalesced(listed, opts)

    def _request_for(self, tensor: torch.Tensor, op: Any) -> Optional[KeptRequest]:
        """For plain tensors on the CPU, as most are. None for others, and for what will be refused, of which all ranks
        are to hear."""
        if not _may_be_kept(tensor):
            return None
        key = ("allreduce", tensor.shape, tensor.dtype, _number_of(op))
        return self._requests.get(key) or self._keep_request(
            key, lambda: _of_sums("allreduce", op, tensor, described(tensor)))

    def _keep_request(self, key: Any, make: Callable[[], Optional[KeptRequest]]) -> Optional[KeptRequest]:
        try:
            kept = make()
        except (TypeError, ValueError):
            return None
        if len(self._requests) >= _REQUESTS:
            self._requests.clear()
        if kept is not None:
            self._requests[key] = kept
        return kept

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> GroupWork:
        listed = list_of(tensors)

        def submit(flights: list[_Flight], *names: str) -> Finish:
            for tensor in listed:
                require_host(tensor)
                require_numbers(tensor)
            landings = [Landing(tensor, load=True) for tensor in listed]
            for name, landing in zip(names, landings):
                self._part(flights, "allreduce", name, None, described(landing.memory),
                           reduction=reduction_of(op_of(opts), landing.tensor))
            return lambda _: [landing.land() for landing in landings]

        return self._start(opts, submit, len(listed))

    def _allreduce_sparse(self, tensor: torch.Tensor, opts: Any) -> GroupWork:
        """Every rank gets what is not zero on any."""

        def submit(flights: list[_Flight], *names: str) -> Finish:
            how = reduction_of(op_of(opts), tensor)
            if tensor.device.type != "cpu" or how.op not in (how.op.SUM, how.op.AVERAGE):
                raise InvalidArgument(f"{how.op.name} of a sparse tensor on {tensor.device}: the back end ronde has "
                                      "sums and averages of sparse tensors on the CPU")
            ours = tensor.detach().coalesce()
            values, places = contiguous(ours.values()), places_of(tensor, ours.indices(), self._rank)
            require_numbers(values)
            for name, part in zip(names, (values, places)):
                self._part(flights, "allgather", name, described(part), None)

            def finish(done: list[_Flight]) -> list[torch.Tensor]:
                indices = gathered_places(Received(done[1]).rows_like(places), tensor, names[0])
                return [assign_sparse(tensor, how, self._size, Received(done[0]).rows_like(values), indices)]

            return finish

        return self._start(opts, submit, 2)

    def reduce(self, tensors: Tensors, opts: Any = None, op: Any = None) -> GroupWork:
        """A reduce-scatter in which the root gets every row; the other ranks' tensors stay as they are."""
        tensor, root = only_of(tensors), root_of(opts)

        def submit(flights: list[_Flight], name: str) -> Finish:
            require_host(tensor)
            require_numbers(tensor)
            landing = Landing(tensor, load=True)
            memory = described(landing.memory, (tensor.numel(),))
            splits = [memory.shape[0] if rank == root else 0 for rank in range(self._size)]
            self._part(flights, "reduce_scatter", name, memory, memory, splits=splits,
                       reduction=reduction_of(op_of(opts, op), tensor))
            return lambda _: [landing.land() if root == self._rank else tensor]

        return self._start(opts, submit)

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> GroupWork:
        output, inputs = only_of(output_tensors), matrix_of(input_tensors)

        def submit(flights: list[_Flight], name: str) -> Finish:
            require_each(inputs, self._size, "inputs")
            require_alike(inputs, output)
            return self._scatter_sums(flights, name, output, joined(inputs), [one.numel() for one in inputs], opts)

        return self._start(opts, submit)

    def _reduce_scatter_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Started:
        kept = self._request_for_shares("reduce_scatter", output, input, op_of(opts))
        if kept is not None:
            return self._start_kept(opts, kept, output, input)
        return self.reduce_scatter_tensor_coalesced([output], [input], opts)

    def _request_for_shares(self, operation: str, share: torch.Tensor, whole: torch.Tensor,
                            op: Any = None) -> Optional[KeptRequest]:
        """As _request_for(), where `whole` has one such share of each rank; op: of a reduction."""
        count, dtype, size = share.numel(), share.dtype, self._size
        if not (_may_be_kept(share) and _may_be_kept(whole) and dtype is whole.dtype and count > 0 and
                whole.numel() == size * count):
            return None
        share_bytes, place = count * share.element_size(), share.data_ptr() - whole.data_ptr()
        if -share_bytes < place < size * share_bytes and place != self._rank * share_bytes:
            return None  # they overlap elsewhere than where this rank's share belongs
        key = (operation, count, dtype, None if op is None else _number_of(op))
        return self._requests.get(key) or self._keep_request(
            key, lambda: self._request_of_shares(operation, share, whole, op))

    def _request_of_shares(self, operation: str, share: torch.Tensor, whole: torch.Tensor,
                           op: Any) -> Optional[KeptRequest]:
        if op is None:
            return KeptRequest(operation, described(share, (1, share.numel())), gathers=True)
        splits = [math.prod(described(share).shape)] * self._size
        return _of_sums(operation, op, share, described(whole, (whole.numel(),)), splits)

    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> GroupWork:
        def part(flights: list[_Flight], name: str, output: torch.Tensor, whole: torch.Tensor) -> Finish:
            require_alike([whole], output)
            rows, rest = divmod(whole.numel(), self._size)
            if rest:
                raise InvalidArgument(f"{whole.numel()} elements cannot be scattered evenly over {self._size} ranks")
            return self._scatter_sums(flights, name, output, contiguous(whole), [rows] * self._size, opts)

        return self._start_each(opts, list_of(outputs), list_of(inputs), part)

    def _scatter_sums(self, flights: list[_Flight], name: str, output: torch.Tensor, whole: torch.Tensor,
                      counts: Sequence[int], opts: Any) -> Finish:
        """counts: the elements of each rank's share of `whole`."""
        require_numbers(output)
        if output.numel() != counts[self._rank]:
            raise InvalidArgument(f"an output of {output.numel()} elements for a share of {counts[self._rank]}")
        landing = Landing(output, load=False)
        memory = described(whole, (whole.numel(),))
        factor = 2 if whole.is_complex() else 1
        self._part(flights, "reduce_scatter", name, memory, described(landing.memory),
                   splits=[factor * count for count in counts], reduction=reduction_of(op_of(opts), output))
        return lambda _: [landing.land()]

    # ---- operations that move ----

    def broadcast(self, tensors: Tensors, opts: Any = None) -> GroupWork:
        tensor, root = only_of(tensors), root_of(opts)

        def submit(flights: list[_Flight], name: str) -> Finish:
            require_host(tensor)
            landing = Landing(tensor, load=root == self._rank)
            self._part(flights, "broadcast", name, None, described(landing.memory), root=root)
            return lambda _: [landing.land()]

        return self._start(opts, submit)

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> GroupWork:
        outputs, ours = matrix_of(output_tensors), only_of(input_tensors)

        def submit(flights: list[_Flight], name: str) -> Finish:
            require_each(outputs, self._size, "outputs")
            require_alike(outputs, ours)
            return self._gather_everywhere(flights, name, outputs, ours)

        return self._start(opts, submit)

    def _gather_everywhere(self, flights: list[_Flight], name: str, outputs: Sequence[torch.Tensor],
                           ours: torch.Tensor) -> Finish:
        """A row of each rank, so that the ranks compare its length; where outputs differ in size, elements."""
        even = len({output.numel() for output in outputs}) == 1
        landings = [Landing(output, load=False) for output in outputs]
        shape = (1, ours.numel()) if even else (ours.numel(),)
        self._part(flights, "allgather", name, described(contiguous(ours), shape), None)
        number = len(flights) - 1
        return lambda done: Received(done[number]).into(landings)

    def _allgather_base(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Started:
        kept = self._request_for_shares("allgather", input, output)
        if kept is not None:
            return self._start_kept(opts, kept, output, input)
        return self.allgather_into_tensor_coalesced([output], [input], opts)

    def allgather_into_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> GroupWork:
        def part(flights: list[_Flight], name: str, output: torch.Tensor, ours: torch.Tensor) -> Finish:
            require_alike([ours], output)
            if output.numel() != self._size * ours.numel():
                raise InvalidArgument(f"an output of {output.numel()} elements for {self._size} ranks with "
                                      f"{ours.numel()} each")
            return self._gather_everywhere(flights, name, [output], ours)

        return self._start_each(opts, list_of(outputs), list_of(inputs), part)

    def allgather_coalesced(self, output_lists: Sequence[Sequence[torch.Tensor]], inputs: Tensors,
                            opts: Any = None) -> GroupWork:
        """output_lists[r][i] is where rank r's i-th tensor goes."""
        def part(flights: list[_Flight], name: str, outputs: Sequence[torch.Tensor], ours: torch.Tensor) -> Finish:
            require_each(outputs, self._size, "lists of outputs")
            require_alike(outputs, ours)
            return self._gather_everywhere(flights, name, outputs, ours)

        alike = len({len(of_rank) for of_rank in output_lists}) == 1
        return self._start_each(opts, list(zip(*output_lists)) if alike else [], list_of(inputs), part)

    def _exchange(self, flights: list[_Flight], name: str, rows: Memory, sent: Sequence[int],
                  outputs: Sequence[torch.Tensor], expected: Sequence[int]) -> Finish:
        """sent[r] rows go to rank r, expected[r] come from there; they are laid into the outputs one after another."""
        landings = [Landing(output, load=False) for output in outputs]
        self._part(flights, "all_to_all", name, rows, None, splits=sent)
        return lambda done: Received(done[0]).require_rows(expected).into(landings)

    def alltoall_base(self, output: torch.Tensor, input: torch.Tensor, output_splits: Sequence[int],
                      input_splits: Sequence[int], opts: Any = None) -> GroupWork:
        def submit(flights: list[_Flight], name: str) -> Finish:
            require_alike([input], output)
            if not (input.is_contiguous() and output.is_contiguous()):  # as PyTorch's own back ends
                raise InvalidArgument("Tensors must be contiguous: pass .contiguous(), or use all_to_all()")
            sent, expected = splits_of(input, input_splits, self._size), splits_of(output, output_splits, self._size)
            rows = described(contiguous(input), (input.shape[0], math.prod(input.shape[1:])))
            return self._exchange(flights, name, rows, sent, [output], expected)

        return self._start(opts, submit)

    def alltoall(self, output_tensors: Sequence[torch.Tensor], input_tensors: Sequence[torch.Tensor],
                 opts: Any = None) -> GroupWork:
        def submit(flights: list[_Flight], name: str) -> Finish:
            require_each(input_tensors, self._size, "inputs")
            require_each(output_tensors, self._size, "outputs")
            require_alike([*output_tensors, *input_tensors], input_tensors[0])
            return self._exchange_elements(flights, name, joined(input_tensors), counts_of(input_tensors),
                                           output_tensors, counts_of(output_tensors))

        return self._start(opts, submit)

    def _exchange_elements(self, flights: list[_Flight], name: str, elements: torch.Tensor, sent: Sequence[int],
                           outputs: Sequence[torch.Tensor], expected: Sequence[int]) -> Finish:
        """An exchange whose rows are elements."""
        rows = described(elements, (elements.numel(), 1))
        return self._exchange(flights, name, rows, sent, outputs, expected)

    def gather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> GroupWork:
        """An all-to-all in which every rank sends to the root alone."""
        root = root_of(opts)
        outputs, ours = (matrix_of(output_tensors) if root == self._rank else []), only_of(input_tensors)

        def submit(flights: list[_Flight], name: str) -> Finish:
            if root == self._rank:
                require_each(outputs, self._size, "outputs")
            require_alike(outputs, ours)
            sent = [ours.numel() if rank == root else 0 for rank in range(self._size)]
            return self._exchange_elements(flights, name, contiguous(ours), sent, outputs,
                                           counts_of(outputs) or [0] * self._size)

        return self._start(opts, submit)

    def scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> GroupWork:
        """An all-to-all in which the root alone sends."""
        root = root_of(opts)
        output, inputs = only_of(output_tensors), (matrix_of(input_tensors) if root == self._rank else [])

        def submit(flights: list[_Flight], name: str) -> Finish:
            if root == self._rank:
                require_each(inputs, self._size, "inputs")
            require_alike(inputs, output)
            elements = joined(inputs) if inputs else torch.empty(0, dtype=output.dtype)
            expected = [output.numel() if rank == root else 0 for rank in range(self._size)]
            return self._exchange_elements(flights, name, elements, counts_of(inputs) or [0] * self._size, [output],
                                           expected)

        return self._start(opts, submit)

    def barrier(self, opts: Any = None) -> GroupWork:
        def submit(flights: list[_Flight], name: str) -> Finish:
            self._part(flights, "barrier", name, None, None)
            return lambda _: []

        return self._start(opts, submit)

    def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False) -> None:
        """A barrier over the store, whose rank 0 names the first rank that does not come in time, or all of them. The
        group goes on where it has failed."""
        timeout = getattr(opts, "timeout", opts)
        if timeout is None:
            seconds = self._timeout
        else:  # of PyTorch's own back ends it may be a number, of seconds
            seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)
        with self._order:
            self._monitored += 1
            number = self._monitored
        self._shared.roll_call.await_all(number, seconds, wait_all_ranks)

    # ---- names that newer versions of PyTorch use ----

    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    def gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> GroupWork:
        mine = root_of(opts) == self._rank
        return self.gather([list(output.chunk(self._size))] if mine else [], [input], opts)

    gather_into_tensor = gather_single
