# SPDX-License-Identifier: Apache-2.0
"""Trainings of PyTorch's own wrappers over the back end "ronde". torch_group.py runs them, too."""
import unittest

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from torch_group_kit import NEW_TORCH, Ranks
from torch_models import Optional, data

class Training(Ranks):
    def share(self, tensor):
        return tensor.chunk(self.size)[self.rank]

    def train(self, wrap=None, make=None, share=False, steps=4, **inputs):
        torch.manual_seed(1 + (self.rank if share else 0))
        model = Optional()
        model = wrap(model) if wrap else model
        optimizer = (make or (lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9)))(
            [one for one in model.parameters() if one.requires_grad])
        for step in range(steps):
            optimizer.zero_grad()
            images, wanted = map(self.share, data(step)) if share else data(step)
            F.mse_loss(model(images, **inputs), wanted).backward()
            optimizer.step()
        return model

    def assert_same(self, model, reference, tolerance=1e-5):
        for (name, one), other in zip(model.named_parameters(), reference.parameters()):
            self.assertTrue(torch.allclose(one, other, atol=tolerance), name)

    def test_ranks_with_shares_are_one_with_the_whole_batch(self):
        reference = self.train()
        self.assert_same(self.train(DistributedDataParallel, share=True), reference)
        self.assert_same(self.train(lambda model: DistributedDataParallel(
            model, bucket_cap_mb=0.0001, gradient_as_bucket_view=True), share=True), reference)
        self.assert_same(self.train(lambda model: DistributedDataParallel(model, find_unused_parameters=True), share=True,
                                    extra=False), self.train(extra=False))

    def test_hooks(self):
        def hooked(hook, state=None):
            def wrap(model):
                parallel = DistributedDataParallel(model)
                parallel.register_comm_hook(state, hook)
                return parallel
            return wrap

        reference = self.train()
        self.assert_same(self.train(hooked(default_hooks.fp16_compress_hook), share=True), reference, 1e-2)
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=6, start_powerSGD_iter=2,
                                            min_compression_rate=0.1)
        model = self.train(hooked(powerSGD_hook.powerSGD_hook, state), share=True)
        for one in model.parameters():
            others = [torch.empty_like(one) for _ in self.all]
            dist.all_gather(others, one.detach())
            self.assertTrue(all(torch.equal(one, other) for other in others))

    def test_a_model_that_differs_is_an_error_on_every_rank(self):
        if self.size == 1:
            return
        group = dist.new_group()
        with self.assertRaises(RuntimeError):  # PyTorch 1.13 tells only some ranks, and the others hear of their end
            DistributedDataParallel(torch.nn.Linear(3, 2 + (self.rank == 0)), process_group=group)
        group.abort()
        dist.barrier()

    def test_sparse_gradients(self):
        torch.manual_seed(1)
        model = DistributedDataParallel(torch.nn.Embedding(7, 3, sparse=True))
        model(torch.tensor([self.rank, 5])).sum().backward()
        gradient = model.module.weight.grad.to_dense()[:, 0]
        expected = torch.tensor([1.0 / self.size if row < self.size else float(row == 5) for row in range(7)])
        self.assertTrue(torch.allclose(gradient, expected))

    def test_the_state_of_an_optimiser_is_divided(self):
        def make(parameters):
            return ZeroRedundancyOptimizer(parameters, optimizer_class=torch.optim.Adam, lr=0.01)

        self.assert_same(self.train(DistributedDataParallel, make, share=True),
                         self.train(make=lambda parameters: torch.optim.Adam(parameters, lr=0.01)), 1e-4)

    def test_ranks_may_have_different_numbers_of_batches(self):
        model = DistributedDataParallel(torch.nn.Linear(2, 1))
        with model.join():
            for step in range(2 + self.rank):
                model.zero_grad()
                model(torch.ones(1, 2)).sum().backward()
                present = self.size - max(0, step - 1)
                self.assertAlmostEqual(model.module.bias.grad.item(), present / self.size, places=6)
        dist.barrier()

    @unittest.skipUnless(NEW_TORCH, "PyTorch 1.13 shards on GPUs alone")
    def test_parameters_are_sharded(self):
        from torch.distributed.fsdp import FullyShardedDataParallel  # pylint: disable=import-outside-toplevel
        reference = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 6))
        for parameter in reference.parameters():
            dist.broadcast(parameter.data, 0)
        sharded = FullyShardedDataParallel(torch.nn.Sequential(*[type(part)(*_sizes(part)) for part in reference]),
                                           device_id=torch.device("cpu"))
        with FullyShardedDataParallel.summon_full_params(sharded):
            for one, other in zip(sharded.parameters(), reference.parameters()):
                one.data.copy_(other.data)
        for model in (sharded, reference):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(3):
                optimizer.zero_grad()
                values = data(step)[1]
                values = self.share(values) if model is sharded else values
                model(values).square().mean().backward()
                optimizer.step()
        with FullyShardedDataParallel.summon_full_params(sharded):
            self.assert_same(sharded, reference)


def _sizes(part):
    return (part.in_features, part.out_features) if isinstance(part, torch.nn.Linear) else ()
