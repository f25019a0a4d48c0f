# SPDX-License-Identifier: Apache-2.0
"""Messages between two ranks of torch.distributed over Ronde; torch_group.py runs these tests."""
import copy
import datetime
import unittest

import torch
import torch.distributed as dist

import ronde.torch
from torch_group_kit import Ranks

SIZES = (0, 1, 1000, 3000, 300_000)  # elements: small ones, and such as are copied once


def made_by(rank, count, dtype=torch.float32):
    return (torch.arange(count) % 100 + rank).to(dtype)


class Pairs(Ranks):
    def setUp(self):
        super().setUp()
        if self.size == 1:
            raise unittest.SkipTest("one rank")
        self.next, self.before = (self.rank + 1) % self.size, (self.rank - 1) % self.size

    def test_send_and_recv(self):
        for dtype in (torch.float32, torch.int64, torch.bool, torch.float16, torch.complex64):
            for count in SIZES:
                got = torch.zeros(count, dtype=dtype)
                if self.rank % 2 == 0 and self.next != 0:
                    dist.send(made_by(self.rank, count, dtype), self.next)
                if self.rank % 2 == 1:
                    self.assertEqual(dist.recv(got, self.before), self.before)
                    self.assertTrue(torch.equal(got, made_by(self.before, count, dtype)))

    def test_many_in_flight_in_order(self):
        count = 64
        gets = [torch.zeros(SIZES[i % len(SIZES)]) for i in range(count)]
        works = [dist.irecv(one, self.before, tag=3) for one in gets]
        works += [dist.isend(made_by(self.rank + i, one.numel()), self.next, tag=3) for i, one in enumerate(gets)]
        step = torch.ones(1000)
        dist.all_reduce(step)
        self.assertEqual(step[0].item(), self.size)
        for work in works:
            work.wait()
        for i, one in enumerate(gets):
            self.assertTrue(torch.equal(one, made_by(self.before + i, one.numel())), i)

    def test_strided_tensors(self):
        whole = torch.zeros(300, 400)
        work = dist.irecv(whole[:, 7:9], self.before)
        dist.send(made_by(self.rank, 600).reshape(2, 300).t(), self.next)
        work.wait()
        self.assertTrue(torch.equal(whole[:, 7:9], made_by(self.before, 600).reshape(2, 300).t()))
        self.assertEqual(whole[:, :7].abs().sum().item(), 0)

    def test_batches_of_them(self):
        got = torch.zeros(5000)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, made_by(self.rank, 5000), self.next),
                                        dist.P2POp(dist.irecv, got, self.before)])
        for work in works:
            work.wait()
        self.assertTrue(torch.equal(got, made_by(self.before, 5000)))

    def test_from_any_rank(self):
        if self.rank:
            dist.send(made_by(self.rank, 20_000), 0, tag=9)
            return
        sources = []
        for _ in self.all[1:]:
            got = torch.zeros(20_000)
            sources.append(dist.recv(got, tag=9))
            self.assertTrue(torch.equal(got, made_by(sources[-1], 20_000)))
        self.assertEqual(sorted(sources), list(self.all[1:]))

    def test_objects(self):
        if not hasattr(dist, "send_object_list"):
            raise unittest.SkipTest(f"PyTorch {torch.__version__} has no send_object_list")
        objects = [{"rank": self.rank, "text": "x" * 20_000}, (1, 2)]
        if self.rank == 0:
            dist.send_object_list(objects, dst=1)
        if self.rank == 1:
            got = [None, None]
            dist.recv_object_list(got, src=0)
            self.assertEqual(got, [{"rank": 0, "text": "x" * 20_000}, (1, 2)])

    def test_what_does_not_fit_is_named(self):
        if self.rank == 0:
            with self.assertRaisesRegex(ronde.Error, "rank 0 sends 9000 of f32, rank 1 receives 9000 of f64"):
                dist.send(torch.ones(9000), 1)
        if self.rank == 1:
            with self.assertRaisesRegex(ronde.Error, r"rank 1 receives 9000 of f64 \(at .*torch_pairs.py:"):
                dist.recv(torch.ones(9000, dtype=torch.float64), 0)
        dist.barrier()

    def test_a_wait_may_be_shorter_than_the_message(self):
        got = torch.zeros(1)
        work = dist.irecv(got, self.before)
        if self.rank == 0:
            with self.assertRaisesRegex(ronde.Error, "recv from .*not done after 0.05 s"):
                work.wait(datetime.timedelta(seconds=0.05))
        dist.barrier()
        dist.send(torch.ones(1), self.next)
        work.wait()
        self.assertEqual(got.item(), 1)

    def test_a_stage_of_a_pipeline_each(self):
        """Of two stages, with PyTorch's own schedule."""
        try:
            from torch.distributed.pipelining import PipelineStage, Schedule1F1B
        except ImportError:
            raise unittest.SkipTest(f"PyTorch {torch.__version__} has no pipelines") from None
        if self.size != 2:
            raise unittest.SkipTest("a pipeline of two ranks")
        torch.manual_seed(1)
        layers = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()), torch.nn.Linear(16, 4)]
        whole = torch.nn.Sequential(*copy.deepcopy(layers))
        data, target = torch.randn(8, 16), torch.randn(8, 4)
        stage = PipelineStage(layers[self.rank], self.rank, 2, torch.device("cpu"))
        schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
        if self.rank == 0:
            schedule.step(data)
        else:
            losses = []
            schedule.step(target=target, losses=losses)
            self.assertEqual(len(losses), 4)
        torch.nn.functional.mse_loss(whole(data), target).backward()
        for ours, expected in zip(layers[self.rank].parameters(), whole[self.rank].parameters()):
            self.assertTrue(torch.allclose(ours.grad, expected.grad, atol=1e-6))
