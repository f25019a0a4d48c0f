# SPDX-License-Identifier: Apache-2.0
"""What ranks share besides gradients: states, and statistics of normalization. torch_ranks.py runs these tests, too."""
import copy
import threading

import torch

import ronde.torch as hvd
from ronde._job import _job
from torch_ranks_kit import OnlyHere, Ranks, make_model

class State(Ranks):
    def test_parameters_buffers_and_tied_weights(self):
        model = make_model(seed=self.rank)
        model.count += self.rank
        for what in (model.state_dict(), model.named_parameters(), list(model.parameters())):
            hvd.broadcast_parameters(what, root_rank=self.size - 1)
        expected = make_model(seed=self.size - 1)
        expected.count += self.size - 1
        for one, other in zip(model.state_dict().values(), expected.state_dict().values()):
            self.assertTrue(torch.equal(one, other))
        self.assertIs(model.first.weight, model.tied.weight)
        with self.assertRaisesRegex(ValueError, "int"):
            hvd.broadcast_parameters(3)

    def test_complex_buffers_and_states(self):
        root = self.size - 1
        buffer = torch.full((2, 3), self.rank + 1j)
        lazy = torch.full((2,), self.rank + 1j).conj()
        hvd.broadcast_parameters({"table": buffer.t(), "lazy": lazy, "real": buffer.real}, root_rank=root)
        self.assertTrue(torch.equal(buffer, torch.full((2, 3), root + 1j)))
        self.assertTrue(torch.equal(lazy, torch.full((2,), root - 1j)))
        weight = torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        weight.grad = torch.full((2,), self.rank + 2j).conj()
        optimizer.step()
        optimizer.state[weight]["momentum_buffer"] = weight.grad
        hvd.broadcast_optimizer_state(optimizer, root_rank=root)
        self.assertTrue(torch.equal(optimizer.state[weight]["momentum_buffer"], torch.full((2,), root - 2j)))

    def test_models_that_differ_are_an_error_on_every_rank(self):
        model = torch.nn.Linear(3, 2, bias=self.rank == 0)
        if self.size > 1:
            with self.assertRaisesRegex(hvd.Error, "rank 1 has .*weight.* where rank 0 has .*bias"):
                hvd.broadcast_parameters(model.state_dict())
        hvd.broadcast_parameters({"weight": model.weight})

    def test_what_only_one_rank_has_elsewhere_is_an_error_on_every_rank(self):
        for wrong, word in ((torch.ones(2, device="meta"), "meta"), (torch.ones(2).to_sparse(), "sparse")):
            if self.size > 1:
                with self.assertRaisesRegex(hvd.Error, f"rank 1 has .*{word}.* where rank 0 has .*cpu"):
                    hvd.broadcast_parameters({"p": wrong if self.rank == 1 else torch.ones(2)})
            with self.assertRaisesRegex(ValueError, word):
                hvd.broadcast_parameters({"p": wrong})

    def test_a_state_that_cannot_be_sent_is_an_error_on_every_rank(self):
        root = self.size - 1
        for wrong, kind, word in ((torch.ones(2, device="meta"), ValueError, "meta"),
                                  (threading.Lock(), TypeError, "pickle")):
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
            if self.rank == root:
                optimizer.param_groups[0]["extra"] = wrong
            with self.assertRaisesRegex(kind if self.rank == root else hvd.Error,
                                        word if self.rank == root else f"rank {root} could not be serialized"):
                hvd.broadcast_optimizer_state(optimizer, root_rank=root)

    def test_a_state_that_a_rank_cannot_read_or_take_is_an_error_on_every_rank(self):
        def optimizer_of(count):
            return torch.optim.SGD([torch.nn.Parameter(torch.ones(2)) for _ in range(count)], lr=0.1)

        if self.size == 1:
            return
        optimizer = optimizer_of(1)
        optimizer.param_groups[0]["extra"] = OnlyHere() if self.rank == 0 else None
        with self.assertRaisesRegex(hvd.Error, "rank 1 cannot read it: RuntimeError: not on rank 1"):
            hvd.broadcast_optimizer_state(optimizer)
        with self.assertRaisesRegex(hvd.Error, "rank 1 cannot take it: ValueError.*parameter group"):
            hvd.broadcast_optimizer_state(optimizer_of(1 + (self.rank == 1)))
        hvd.broadcast_optimizer_state(optimizer_of(1))  # the job lives on

    def test_a_named_gather_has_a_named_gradient(self):
        # Unnamed operations are numbered: ranks that gather by name may do it in different orders.
        tensors = {name: torch.ones(1, 1, requires_grad=True) for name in "ab"}
        gathered = {name: hvd.allgather(tensor, name=name) for name, tensor in tensors.items()}
        before = dict(_job.unnamed)
        for one in gathered.values():
            one.sum().backward()
        self.assertEqual(dict(_job.unnamed), before)

    def test_state_of_an_optimiser(self):
        for kind in (torch.optim.Adam, torch.optim.LBFGS):
            model = torch.nn.Linear(4, 3)
            optimizer = kind(model.parameters(), lr=0.1 * (1 + self.rank))

            def closure():
                optimizer.zero_grad()
                loss = model(torch.ones(2, 4)).square().sum()
                loss.backward()
                return loss

            if self.rank == 0:
                optimizer.step(closure)
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
            self.assertEqual(optimizer.param_groups[0]["lr"], 0.1)
            states = hvd.allgather_object(copy.deepcopy(optimizer.state_dict()["state"]))
            self.assertTrue(states[0])
            for state in states:
                self.assertEqual(repr(state), repr(states[0]))
        fresh = torch.optim.SGD(model.parameters(), lr=0.5 + self.rank, momentum=0.9)
        hvd.broadcast_optimizer_state(fresh, root_rank=0)
        self.assertEqual((fresh.param_groups[0]["lr"], len(fresh.state)), (0.5, 0))


class Normalization(Ranks):
    def test_batches_of_all_ranks_are_one(self):
        sizes = [4, 0, 3][:self.size] if self.size > 1 else [4]  # a rank has nothing
        starts = [sum(sizes[:rank]) for rank in range(self.size + 1)]
        mine = slice(starts[self.rank], starts[self.rank + 1])
        for shape, momentum, affine in (((5,), 0.1, True), ((5, 3), None, True), ((5, 2, 2), 0.1, False)):
            torch.manual_seed(3)
            values, weights = torch.randn(sum(sizes), *shape) * 2 + 3, torch.randn(sum(sizes), *shape)
            kind = {1: torch.nn.BatchNorm1d, 2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm2d}[len(shape)]
            expected = kind(5, momentum=momentum, affine=affine)
            layer = hvd.SyncBatchNorm(5, momentum=momentum, affine=affine)
            if affine:
                torch.nn.init.normal_(expected.weight)
                layer.load_state_dict(expected.state_dict())
            whole, part = values.clone().requires_grad_(), values[mine].clone().requires_grad_()
            for _ in range(2):
                wanted, got = expected(whole), layer(part)
            (wanted * weights).sum().backward()
            (got * weights[mine]).sum().backward()
            self.assertTrue(torch.allclose(got, wanted[mine], atol=1e-5))
            self.assertTrue(torch.allclose(part.grad, whole.grad[mine], atol=1e-5))
            self.assertTrue(torch.allclose(layer.running_mean, expected.running_mean, atol=1e-5))
            self.assertTrue(torch.allclose(layer.running_var, expected.running_var, atol=1e-5))
            if affine:
                total = hvd.allreduce(torch.stack([layer.weight.grad, layer.bias.grad]), op=hvd.Sum)
                self.assertTrue(torch.allclose(total, torch.stack([expected.weight.grad, expected.bias.grad]),
                                               atol=1e-4))
            layer.eval()
            self.assertTrue(torch.allclose(layer(part), expected.eval()(whole)[mine], atol=1e-5))

    def test_half_types(self):
        layer = hvd.SyncBatchNorm(2).to(torch.bfloat16)
        values = torch.randn(4, 2, 3).to(torch.bfloat16).requires_grad_()
        result = layer(values)
        result.sum().backward()
        self.assertEqual((result.dtype, values.grad.dtype), (torch.bfloat16, torch.bfloat16))
