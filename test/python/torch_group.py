#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The back end "ronde" of torch.distributed. Ranks are processes that this starts itself (--ranks N), or torchrun's or
mpirun's. It runs the tests of other files, too, since loading PyTorch takes longer than they do."""
import datetime
import re
import sys
import threading
import time

import torch
import torch.distributed as dist

import ronde.torch
from ronde.torch._backend import has_python_backends
from torch_group_kit import NEW_TORCH, SECONDS, Ranks, held, main, make_group, place_of
from torch_pairs import Pairs  # noqa: F401, as those of the next line
from torch_group_errors import Errors  # noqa: F401
from torch_group_training import Training  # noqa: F401, its tests run here

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Collectives(Ranks):
    def reduced(self, op, dtype, fold):
        tensor = place_of(self.rank, dtype)
        dist.all_reduce(tensor, op)
        expected = place_of(0, dtype)
        for rank in self.all[1:]:
            expected = fold(expected, place_of(rank, dtype))
        self.assert_is(tensor, expected)

    def test_reductions_of_every_type(self):
        ops = dist.ReduceOp
        for dtype in INTEGERS + FLOATS:
            self.reduced(ops.SUM, dtype, lambda a, b: a + b)
            self.reduced(ops.PRODUCT, dtype, lambda a, b: a * b)
            self.reduced(ops.MIN, dtype, torch.minimum)
            self.reduced(ops.MAX, dtype, torch.maximum)
        for dtype in INTEGERS + (torch.bool,):
            self.reduced(ops.BAND, dtype, lambda a, b: a & b)
            self.reduced(ops.BOR, dtype, lambda a, b: a | b)
            self.reduced(ops.BXOR, dtype, lambda a, b: a ^ b)
        mine = torch.tensor([self.rank == 0, True, False])
        for op, expected in ((ops.SUM, [True, True, False]), (ops.PRODUCT, [self.size == 1, True, False])):
            tensor = mine.clone()
            dist.all_reduce(tensor, op)
            self.assertEqual(tensor.tolist(), expected)
        average = torch.tensor([float(self.rank)])
        dist.all_reduce(average, ops.AVG)
        self.assertAlmostEqual(average.item(), (self.size - 1) / 2, places=6)

    def test_a_call_like_one_before_is_a_call_of_its_own(self):
        ops = dist.ReduceOp
        for _ in range(3):
            for op, fold in ((ops.SUM, sum), (ops.MAX, max), (ops.AVG, lambda values: sum(values) / self.size)):
                for shape in ((4,), (2, 2), ()):
                    for dtype in (torch.float32, torch.int32):
                        tensor = torch.full(shape, 2 * self.rank, dtype=dtype)
                        work = dist.all_reduce(tensor, op, async_op=True)
                        work.wait()
                        expected = torch.full(shape, int(fold([2 * rank for rank in self.all])), dtype=dtype)
                        self.assert_is(tensor, expected)
                        self.assertEqual(work.get_future().wait()[0].data_ptr(), tensor.data_ptr())
        for count in range(300):  # more shapes than are kept
            tensor = torch.ones(count % 290)
            dist.all_reduce(tensor)
            self.assert_is(tensor, torch.full((count % 290,), float(self.size)))
        if self.size == 1:
            return

        def disagree(all_reduce):
            with self.assertRaisesRegex(ronde.Error, "disagree") as caught:
                all_reduce(torch.ones(2 + self.rank))
            return re.search(r"torch_group.py:\d+", str(caught.exception))[0]

        dist.all_reduce(torch.ones(2))
        self.assertNotEqual(disagree(lambda tensor: dist.all_reduce(tensor)),  # pylint: disable=unnecessary-lambda
                            disagree(lambda tensor: dist.all_reduce(tensor)))  # pylint: disable=unnecessary-lambda

    def test_a_sum_of_multiples(self):
        op = torch._C._distributed_c10d._make_nccl_premul_sum(2.0)
        if not NEW_TORCH:  # which keeps the factor to itself
            with self.assertRaisesRegex(ValueError, "PREMUL_SUM: PyTorch 1.13"):
                dist.all_reduce(place_of(self.rank), op)
            return
        dist.all_reduce(place_of(self.rank), torch._C._distributed_c10d._make_nccl_premul_sum(1.0))
        tensor = place_of(self.rank)
        dist.all_reduce(tensor, op)
        self.assert_is(tensor, sum(2 * place_of(rank) for rank in self.all))
        sparse = place_of(self.rank).to_sparse()
        dist.all_reduce(sparse, op)
        self.assert_is(sparse.to_dense(), tensor)

    def test_lists_that_do_not_fit_are_refused(self):
        group = dist.distributed_c10d._get_default_group()
        outputs = [torch.zeros(self.size) for _ in range(2)]
        with self.assertRaisesRegex((ValueError, RuntimeError), "2 outputs for 1 inputs"):
            group.allgather_into_tensor_coalesced(outputs, [torch.ones(1)])
        if not has_python_backends():  # else PyTorch finds no back end for no tensor
            with self.assertRaisesRegex(ValueError, "no tensors"):
                group.allreduce_coalesced([])

    def test_layouts(self):
        # Where PyTorch dispatches it loses what is done in place to a view that is negated lazily, with every back end.
        lazy = [] if has_python_backends() else [lambda: torch._neg_view(torch.ones(3))]
        for make in (lambda: torch.tensor(3.0), lambda: torch.ones(0, 4), lambda: torch.ones(3, 4).t(),
                     lambda: torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last),
                     lambda: torch.ones(6)[::2], lambda: torch.ones(2, dtype=torch.complex64), *lazy):
            tensor = make()
            dist.all_reduce(tensor)
            self.assert_is(tensor, make() * self.size)
            tensor = make() * self.rank
            dist.broadcast(tensor, self.size - 1)
            self.assert_is(tensor, make() * (self.size - 1))
            outputs = [torch.empty_like(tensor) for _ in self.all]
            dist.all_gather(outputs, make() * self.rank)
            for rank, output in enumerate(outputs):
                self.assert_is(output, make() * rank)
        dist.all_gather(outputs := [torch.ones(2) for _ in self.all], torch._efficientzerotensor(2))
        self.assert_is(outputs[self.size - 1], torch.zeros(2))
        weight = torch.ones(3, requires_grad=True)
        dist.all_reduce(weight)
        self.assertEqual(weight.tolist(), [self.size] * 3)

    def test_gathers(self):
        for dtype in INTEGERS + FLOATS + (torch.bool, torch.complex128):
            whole = torch.empty(self.size * 5, dtype=dtype)
            dist._all_gather_base(whole, place_of(self.rank, dtype))
            self.assert_is(whole, torch.cat([place_of(rank, dtype) for rank in self.all]))
        gathered = torch.cat([place_of(rank, torch.float32) for rank in self.all])
        for first in (5 * self.rank, 0):  # a part of the output, where it belongs and elsewhere
            whole = torch.empty(self.size * 5)
            whole[first:first + 5] = place_of(self.rank, torch.float32)
            dist._all_gather_base(whole, whole[first:first + 5])
            self.assert_is(whole, gathered)
        whole = torch.empty(self.size * 5, 2)[:, 0] if self.rank == 0 else torch.empty(self.size * 5)
        dist._all_gather_base(whole, place_of(self.rank, torch.float32))
        self.assert_is(whole, gathered)
        outputs = [torch.empty(rank + 1, 2) for rank in self.all]  # ranks differ
        dist.all_gather(outputs, torch.full((self.rank + 1, 2), float(self.rank)))
        self.assertEqual([output.sum().item() for output in outputs], [2.0 * r * (r + 1) for r in self.all])
        lists = [[torch.empty(2), torch.empty(3)] for _ in self.all]
        dist.all_gather_coalesced(lists, [torch.full((size,), float(self.rank)) for size in (2, 3)])
        for rank, pair in enumerate(lists):
            for size, one in zip((2, 3), pair):
                self.assert_is(one, torch.full((size,), float(rank)))
        root = self.size - 1
        outputs = [torch.empty(2, 2) for _ in self.all] if self.rank == root else None
        dist.gather(torch.full((2, 2), float(self.rank)), outputs, root)
        if self.rank == root:
            self.assertEqual([output[0, 0].item() for output in outputs], [float(rank) for rank in self.all])
        output = torch.empty(2, 2)
        parts = [torch.full((2, 2), float(rank)) for rank in self.all] if self.rank == root else None
        dist.scatter(output, parts, root)
        self.assert_is(output, torch.full((2, 2), float(self.rank)))

    def test_sums_that_are_scattered_or_for_one(self):
        for dtype in (torch.int64, torch.float32, torch.complex64):
            output = torch.empty(5, dtype=dtype)
            dist.reduce_scatter(output, [place_of(self.rank + 10 * rank, dtype) for rank in self.all])
            expected = sum(place_of(other + 10 * self.rank, dtype) for other in self.all)
            self.assert_is(output, expected)
            dist._reduce_scatter_base(output, torch.cat([place_of(self.rank + 10 * rank, dtype) for rank in self.all]))
            self.assert_is(output, expected)
        uneven = torch.empty(self.rank + 1)
        dist.reduce_scatter(uneven, [torch.full((rank + 1,), float(rank)) for rank in self.all])
        self.assert_is(uneven, torch.full((self.rank + 1,), float(self.rank * self.size)))
        tensor, root = place_of(self.rank, shape=(2, 3)), self.size - 1
        dist.reduce(tensor, root)
        self.assert_is(tensor, sum(place_of(rank, shape=(2, 3)) for rank in self.all) if self.rank == root
                       else place_of(self.rank, shape=(2, 3)))
        several = [place_of(self.rank), place_of(self.rank, shape=(2, 2))]
        dist.all_reduce_coalesced(several)
        for one in several:
            self.assert_is(one, sum(place_of(rank, shape=one.shape) for rank in self.all))

    def test_exchanges(self):
        sent = [torch.full((self.rank + rank,), float(10 * self.rank + rank)) for rank in self.all]
        received = [torch.empty(self.rank + rank) for rank in self.all]
        dist.all_to_all(received, sent)
        for rank, one in enumerate(received):
            self.assert_is(one, torch.full((self.rank + rank,), float(10 * rank + self.rank)))
        output = torch.empty(sum(rank + 1 for rank in self.all), 2)
        dist.all_to_all_single(output, torch.full(((self.rank + 1) * self.size, 2), float(self.rank)),
                               [rank + 1 for rank in self.all], [self.rank + 1] * self.size)
        self.assert_is(output[:, 0], torch.cat([torch.full((rank + 1,), float(rank)) for rank in self.all]))
        output = torch.empty(self.size, dtype=torch.int64)
        dist.all_to_all_single(output, torch.arange(self.size) + 10 * self.rank)
        self.assert_is(output, 10 * torch.arange(self.size) + self.rank)
        turned = torch.zeros(2 * self.size, self.size).t()
        for pair in ((turned, torch.ones(self.size, 2 * self.size)), (torch.ones(self.size, 2 * self.size), turned)):
            with self.assertRaisesRegex((ValueError, RuntimeError), "Tensors must be contiguous"):
                dist.all_to_all_single(*pair)

    def test_objects(self):
        objects = [None] * self.size
        dist.all_gather_object(objects, {"rank": self.rank})
        self.assertEqual(objects, [{"rank": rank} for rank in self.all])
        objects = [("root", self.rank)]
        dist.broadcast_object_list(objects, self.size - 1)
        self.assertEqual(objects, [("root", self.size - 1)])
        objects = [None]
        dist.scatter_object_list(objects, list(self.all) if self.rank == 0 else [None] * self.size, 0)
        self.assertEqual(objects, [self.rank])

    def test_sparse_sums(self):
        mine = torch.sparse_coo_tensor([[self.rank, 3]], torch.tensor([[1.0, 2.0], [3.0, 4.0]]), (5, 2))
        expected = sum(torch.sparse_coo_tensor([[rank, 3]], torch.tensor([[1.0, 2.0], [3.0, 4.0]]), (5, 2)).to_dense()
                       for rank in self.all)
        dist.all_reduce(mine)
        self.assert_is(mine.to_dense(), expected)
        nothing = torch.sparse_coo_tensor(torch.zeros((1, 0), dtype=torch.int64), torch.zeros((0, 2)), (5, 2))
        mine = nothing if self.rank == 0 else torch.sparse_coo_tensor([[1]], torch.ones((1, 2)), (5, 2))
        dist.all_reduce(mine)
        self.assertEqual(mine.to_dense()[:, 0].tolist(), [0.0, self.size - 1.0, 0.0, 0.0, 0.0])
        if self.size > 1:  # what rank 1 has would lie within what rank 0 has
            mine = torch.sparse_coo_tensor([[0, 3]], torch.ones(2), (5 + self.rank,))
            with self.assertRaisesRegex(ronde.Error, r"rank 0 has a sparse tensor of shape \[5\], rank 1 one of \[6\]"):
                dist.all_reduce(mine)


class Works(Ranks):
    def test_results_and_futures(self):
        tensor = torch.ones(3)
        work = dist.all_reduce(tensor, async_op=True)
        if not has_python_backends():  # else PyTorch makes a new wrapper of it for each question
            self.assertIs(work.get_future(), work.get_future())
        self.assert_is(work.get_future().wait()[0], torch.full((3,), float(self.size)))
        self.assertTrue(work.wait() and work.is_completed() and work.is_success())
        self.assertIs(work.result()[0], tensor)
        outputs = [torch.empty(1) for _ in self.all]
        work = dist.all_gather(outputs, torch.full((1,), float(self.rank)), async_op=True)
        while not work.is_completed():  # then the outputs are filled
            pass
        self.assertEqual([output.item() for output in outputs], [float(rank) for rank in self.all])

    def test_a_callback_may_wait_for_the_next_operation(self):
        def then(first):
            second = dist.all_reduce(first.wait()[0], async_op=True).get_future()
            return second.wait()[0]

        last = dist.all_reduce(torch.ones(2), async_op=True).get_future().then(then).then(lambda one: one.wait() + 1)
        self.assert_is(last.wait(), torch.full((2,), float(self.size ** 2 + 1)))

    def test_more_in_flight_than_there_are_names_for(self):
        tensors = [torch.full((2,), float(i)) for i in range(600)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        del works[::2]  # nobody waits for them
        for work in works:
            work.wait()
        dist.barrier()
        for i, tensor in enumerate(tensors):
            self.assert_is(tensor, torch.full((2,), float(i * self.size)))

    def test_an_operation_goes_on_without_its_submitter(self):
        """Rank 0 neither waits nor asks until the others are done. Were nobody to go on here, a timer of the runtime
        would, after seconds each time: all have one deadline."""
        store, tensor = dist.distributed_c10d._get_default_store(), torch.ones(2)
        dist.barrier()
        until = time.monotonic() + 20
        for number in range(5):
            work = dist.all_reduce(tensor, async_op=True)
            if self.rank:
                work.wait()
                store.set(f"{number} done on {self.rank}", "1")
            store.wait([f"{number} done on {rank}" for rank in self.all[1:]],
                       datetime.timedelta(seconds=max(0.1, until - time.monotonic())))
            work.wait()
        self.assert_is(tensor, torch.full((2,), float(self.size ** 5)))

    def test_waiting_holds_no_lock_of_the_interpreter(self):
        """The ranks of this group are threads: a wait that held the lock would never end."""
        store, results, last = dist.HashStore(), {}, threading.Event()

        def run(rank):
            for _ in range(2):  # a store serves one group after another
                group = make_group(store, rank, 2, SECONDS, "threads")
                if rank == 1:
                    last.wait()
                tensor = torch.ones(1)
                work = group.allreduce([tensor])
                if rank == 0:
                    threading.Timer(0.0, last.set).start()
                work.wait()
                results[rank] = tensor.item()
                group.shutdown()

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS.total_seconds())
        self.assertEqual(results, {0: 2.0, 1: 2.0})


class Groups(Ranks):
    def test_groups_are_process_sets(self):
        """They open no descriptor and no thread, and groups that cross complete in any order."""
        if self.size == 1:
            return
        dist.barrier()
        before = held()
        members = [[rank for rank in self.all if rank != without] for without in self.all] if self.size > 2 else [[0, 1]]
        groups = [dist.new_group(ranks) for ranks in members]
        mine = [(group, ranks) for group, ranks in zip(groups, members) if self.rank in ranks]
        works = []
        for group, ranks in mine if self.rank % 2 else mine[::-1]:
            tensor = torch.tensor([float(self.rank)])
            works.append((dist.all_reduce(tensor, group=group, async_op=True), tensor, sum(ranks)))
        self.assertEqual(held(), before)
        for work, tensor, total in works:
            work.wait()
            self.assertEqual(tensor.item(), total)
        for group, ranks in mine:
            tensor = torch.tensor([self.rank])
            if self.rank == ranks[0]:
                dist.send(tensor, ranks[-1], group=group)
            elif self.rank == ranks[-1]:
                dist.recv(tensor, ranks[0], group=group)
                self.assertEqual(tensor.item(), ranks[0])
            dist.destroy_process_group(group)
        dist.barrier()

    def test_groups_are_separate(self):
        halves = [dist.new_group([rank for rank in self.all if rank % 2 == half]) for half in (0, 1)
                  if half < self.size]
        mine, members = halves[self.rank % 2], [rank for rank in self.all if rank % 2 == self.rank % 2]
        for _ in range(1 + self.rank % 2):  # the groups need not call as often as each other
            tensor = torch.ones(1)
            dist.all_reduce(tensor, group=mine)
            self.assertEqual(tensor.item(), len(members))
        tensor = torch.tensor([self.rank])
        dist.broadcast(tensor, members[-1], group=mine)
        self.assertEqual(tensor.item(), members[-1])
        dist.barrier()
        dist.destroy_process_group(mine)


if __name__ == "__main__":
    sys.exit(main("torch_group.py"))
