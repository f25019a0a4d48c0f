# SPDX-License-Identifier: Apache-2.0
"""Ranks whose batches differ in length or in number. torch_ranks.py runs these tests, too."""
import torch

import ronde.torch as hvd
from torch_ranks_kit import Ranks


class Batches(Ranks):
    def test_gradients_are_averaged_by_weights(self):
        parameter = torch.nn.Parameter(torch.zeros(3))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), named_parameters=[("by", parameter)])
        total = 0.0
        for step in range(3):
            optimizer.zero_grad()
            weights = [1.0 + (rank + step) % 3 for rank in range(self.size)]
            optimizer.weigh(weights[self.rank])
            (parameter * (self.rank + 1)).sum().backward()
            if self.size > 1:
                with self.assertRaisesRegex(ValueError, "in the middle of a step"):
                    optimizer.weigh(1.0)
            optimizer.step()
            total += (sum(weight * (rank + 1) for rank, weight in enumerate(weights)) / sum(weights) if self.size > 1
                      else 1.0)
            self.assertTrue(torch.allclose(parameter, torch.full((3,), -total)), parameter)
        with self.assertRaisesRegex(NotImplementedError, "detach the tensor"):
            hvd.allreduce(torch.ones(1, requires_grad=True), weight=1.0)
        self.assertAlmostEqual(hvd.allreduce(torch.tensor([2.0]), weight=3.0).item(), 2.0, places=5)

    def test_ranks_with_fewer_batches_join(self):
        parameter = torch.nn.Parameter(torch.zeros(3))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), named_parameters=[("few", parameter)])
        for epoch in range(2):
            torch.nn.init.zeros_(parameter)
            total = 0.0
            for step in range(2 * (self.rank + 1)):
                present = range(step // 2, self.size)
                optimizer.zero_grad()
                (parameter * (self.rank + 1)).sum().backward()
                optimizer.step()
                total += sum(rank + 1 for rank in present) / len(present)
                self.assertTrue(torch.allclose(parameter, torch.full((3,), -total)), (parameter, total))
            self.assertEqual(hvd.join(), self.size - 1)
            hvd.broadcast_parameters([("few", parameter)], root_rank=self.size - 1)
