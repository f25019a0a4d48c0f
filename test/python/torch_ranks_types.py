# SPDX-License-Identifier: Apache-2.0
"""Tensors that are more than numbers in memory: complex ones, lazy ones, and those on the board. torch_ranks.py runs these
tests, too."""
import torch

import ronde.torch as hvd
from ronde._job import current_engine
from torch_ranks_kit import Ranks


class Doubled(hvd.Compressor):
    """Makes a copy, and lazily says the opposite twice."""

    @staticmethod
    def compress(tensor):
        return torch._neg_view(tensor.neg()), None


class Plain(hvd.Compressor):
    """Sends what it is given."""

    @staticmethod
    def compress(tensor):
        return tensor, None


class Types(Ranks):
    def test_sparse_tensors_of_other_shapes_are_refused(self):
        one = torch.sparse_coo_tensor([[1]], torch.ones(1), (5 + self.rank,))  # lies within that of every rank
        done = hvd.sparse_allreduce_async(one, "one", hvd.Sum)
        if self.size > 1:
            with self.assertRaisesRegex(hvd.Error, r"'one': .*rank 0 has a sparse tensor of shape \[5\], rank 1 one of"):
                done()
        else:
            self.assertEqual(done().to_dense().tolist(), [0, 1, 0, 0, 0])

    def test_tensors_whose_memory_says_less_than_they_do(self):
        n, numbers = self.size, torch.arange(1.0, 1.0 + 2 * self.size)
        for lazy in (torch._neg_view(numbers.clone()), torch.complex(numbers, numbers).conj().imag,
                     torch._neg_view(torch.stack([numbers, numbers]).t())[:, 0], torch._efficientzerotensor(2 * n)):
            factor = 0 if lazy._is_zerotensor() else -1
            expected = (factor * numbers).tolist()
            for result in (hvd.allreduce(lazy), hvd.broadcast(lazy, 0), hvd.allreduce(lazy, compression=Doubled),
                           hvd.grouped_allreduce([lazy, lazy])[1], hvd.allreduce(lazy, op=hvd.Max),
                           hvd.allgather(lazy)[-2 * n:], hvd.grouped_allgather([lazy])[0][-2 * n:]):
                self.assertEqual(result.tolist(), expected)
            rows = expected[2 * self.rank:][:2]
            for result in (hvd.reducescatter(lazy), hvd.grouped_reducescatter([lazy])[0]):
                self.assertEqual(result.tolist(), rows)
            self.assertEqual(hvd.alltoall(lazy).tolist(), n * rows)
            self.assertEqual(hvd.alltoall(lazy, torch._neg_view(torch.full((n,), -2)))[0].tolist(), n * rows)
            if factor:  # zeros that have no memory cannot be written
                for operation in (lambda one: hvd.broadcast_(one, n - 1), lambda one: hvd.allreduce_(one, op=hvd.Max),
                                  lambda one: hvd.grouped_allreduce_([one], op=hvd.Max),
                                  lambda one: hvd.broadcast_parameters([("one", one)], n - 1)):
                    target = lazy if self.rank == n - 1 else numbers.clone()  # only one rank's is lazy
                    target.copy_(-numbers - n + 1 + self.rank)
                    operation(target)
                    self.assertEqual(target.tolist(), expected)
            weight = numbers.clone().requires_grad_()
            hvd.allreduce(weight).backward(lazy)
            self.assertEqual(weight.grad.tolist(), expected)
            sparse = torch.sparse_coo_tensor(torch.tensor([[0]]), lazy[None], (1, 2 * n))
            self.assertEqual(hvd.sparse_allreduce_async(sparse, "lazy")().to_dense()[0].tolist(), expected)

    def test_complex_numbers_are_moved_and_summed(self):
        n, rank, total = self.size, self.rank, sum(range(1, self.size + 1))
        for dtype in (torch.complex64, torch.complex128):
            whole = torch.complex(torch.arange(2.0 * n), torch.arange(2.0 * n) + 1).to(dtype).conj()  # lazily
            mine = whole * (rank + 1)
            columns = torch.stack([mine, 2 * mine]).t()
            rows = whole[2 * rank:][:2]
            for result, expected in (
                    (hvd.allreduce(mine, op=hvd.Sum), whole * total), (hvd.allreduce(mine), whole * total / n),
                    (hvd.allreduce(mine[1], postscale_factor=0.5), whole[1] * total / n / 2),
                    (hvd.grouped_allreduce([mine, mine.real], op=hvd.Sum)[0], whole * total),
                    (hvd.allreduce(columns, op=hvd.Sum), torch.stack([whole, 2 * whole]).t() * total),
                    (hvd.allreduce_(columns.clone().conj()), torch.stack([whole, 2 * whole]).t().conj() * total / n),
                    (hvd.reducescatter(mine, op=hvd.Sum), rows * total),
                    (hvd.broadcast(mine, n - 1), whole * n), (hvd.broadcast_(mine.clone().conj(), n - 1), whole.conj() * n),
                    (hvd.allgather(rows * 2), whole * 2),
                    (hvd.grouped_allgather([rows[:rank]])[0], torch.cat([whole[2 * r:][:2][:r] for r in range(n)])),
                    (hvd.allgather(columns[0:1])[:, 1], 2 * whole[0] * torch.arange(1, n + 1)),
                    (hvd.alltoall(mine), torch.cat([rows * (r + 1) for r in range(n)])),
                    (hvd.alltoall(columns, [2] * n)[0][:, 1], torch.cat([2 * rows * (r + 1) for r in range(n)]))):
                self.assertEqual((result.dtype, result.shape), (dtype, expected.shape))
                self.assertTrue(torch.allclose(result, expected.to(dtype)), f"{result} is not {expected}")
            for operation in (hvd.allreduce, hvd.reducescatter, hvd.allreduce_, lambda one, op: hvd.grouped_allreduce(
                    [one.real, one], op=op)):
                for op in (hvd.Max, hvd.Min, hvd.Product, hvd.BAnd):
                    with self.assertRaisesRegex(hvd.Error, f"{op.name} of {dtype}"):
                        operation(mine.clone(), op=op)
            weight = torch.ones(2, dtype=dtype, requires_grad=True)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("weight", weight)])
            (hvd.allgather(weight)[-2:].abs().square().sum() * (rank + 1)).backward()
            optimizer.step()
            self.assertTrue(torch.equal(weight, hvd.broadcast(weight.detach(), 0)))


class OnTheBoard(Ranks):
    def steps(self, to_none, **options):
        """The weights after some steps, the gradients' places in them, and the bytes that were summed in place."""
        weight = torch.nn.Parameter(torch.arange(250_000.0).reshape(500, 500) / 250_000)
        name = f"on the board {to_none} {len(options)}"  # what was agreed of a name elsewhere stays elsewhere
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1), [(name, weight)], **options)
        places, before = [], current_engine().statistics()["in_place_bytes"]
        for step in range(3):
            (weight * weight * (self.rank + step + 1)).sum().backward()
            optimizer.step()
            places.append(weight.grad.data_ptr())
            optimizer.zero_grad(set_to_none=to_none)
        return weight.detach(), places, current_engine().statistics()["in_place_bytes"] - before

    def test_gradients_are_averaged_where_they_lie(self):
        expected, _, elsewhere = self.steps(True, compression=Plain)
        self.assertEqual(elsewhere, 0)
        for to_none in (True, False):
            weights, places, in_place = self.steps(to_none)
            self.assertTrue(torch.equal(weights, expected))
            if self.size > 1:  # of one host
                self.assertEqual((len(set(places)), in_place), (1, 3 * 1_000_000))

    def test_empty_has_every_type(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool):
            tensor = hvd.empty((3, 5), dtype)
            self.assertEqual((tensor.shape, tensor.dtype), ((3, 5), dtype))
            tensor.fill_(1)
            self.assertTrue((hvd.allreduce_(tensor, op=hvd.Max) == 1).all())
        self.assertEqual((hvd.empty(0).shape, hvd.empty(7).shape), ((0,), (7,)))
