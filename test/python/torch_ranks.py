#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ronde.torch: run on each rank of a job, under mpirun or alone. A training on ranks that share each batch must be the
training of one process with the whole batch. It runs the tests of other files, too, since loading PyTorch takes longer
than they do."""
import time
import unittest
import warnings

import torch
import torch.nn.functional as F

import ronde.torch as hvd
from torch_models import data
from torch_ranks_kit import Ranks, make_model, share
from torch_ranks_batches import Batches  # noqa: F401, its tests run here
from torch_ranks_state import Normalization, State  # noqa: F401, their tests run here
from torch_ranks_types import OnTheBoard, Types  # noqa: F401


class Operations(Ranks):
    def test_types_and_layouts(self):
        for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
                      torch.float32, torch.float64, torch.bool):
            tensor = torch.tensor([[self.rank, 1]]).to(dtype)
            self.assertTrue(torch.equal(hvd.allreduce(tensor, op=hvd.Max), torch.tensor([[self.size - 1, 1]]).to(dtype)))
            gathered = hvd.allgather(tensor)
            self.assertEqual((gathered.dtype, gathered.shape), (dtype, (self.size, 2)))
            self.assertTrue(torch.equal(gathered[:, 0], torch.arange(self.size).to(dtype)))
        tensor = torch.full((3, 4), float(self.rank)).t()
        self.assertIs(hvd.allreduce_(tensor, op=hvd.Sum), tensor)
        self.assertTrue(torch.equal(tensor, torch.full((4, 3), float(sum(range(self.size))))))
        wire = hvd.allreduce(torch.full((2,), 1 + 2 ** -12), compression=hvd.Compression.bf16)
        self.assertEqual(wire.tolist(), [1, 1])

    def test_what_is_no_dense_tensor_on_the_cpu_is_refused(self):
        for wrong, word in (([1.0], "no torch.Tensor"), (torch.ones(2).to_sparse(), "layout"),
                            (torch.empty(2, dtype=torch.complex32), "complex32"), (torch.ones(2, device="meta"), "meta")):
            with self.assertRaisesRegex(ValueError, word):
                hvd.allreduce_async(wrong)

    def test_another_type_on_one_rank_is_an_error_on_every_rank(self):
        if self.size > 1:
            with self.assertRaisesRegex(hvd.Error, "rank 0 .*f64.*torch_ranks.py.* rank.* 1.*f32"):
                hvd.allreduce(torch.ones(2, dtype=torch.float32 if self.rank else torch.float64), name="type")
        self.assertEqual(hvd.allreduce(torch.ones(1), name="type").item(), 1)

    def test_a_tensor_elsewhere_on_one_rank_is_an_error_on_every_rank(self):
        # Each kind by itself: nobody waits for the rank that was refused, and the job lives on.
        for call in (hvd.allreduce, hvd.allgather, hvd.alltoall, hvd.reducescatter, lambda one: hvd.broadcast(one, 0),
                     lambda one: hvd.grouped_allreduce([torch.ones(1), one])):
            with self.assertRaisesRegex(hvd.Error, "refused .*on meta" if self.rank else "^a tensor on meta"):
                call(torch.ones(6, device="cpu" if self.rank else "meta"))
        self.assertEqual(hvd.allreduce(torch.ones(1)).item(), 1)

    def test_a_refusal_reaches_every_unit_of_a_group(self):
        # The tensors of one type are a unit. Each of them is waited for by itself here.
        if self.size == 1:
            return
        for wrong, units in ((1, 2), (3, 3)):  # a tensor of a unit that others are in, and one of its own
            whole = [torch.ones(2), torch.ones(2), torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.float64)]
            whole = whole[:wrong + 2] if wrong < 3 else whole
            if self.rank == 0:
                whole[wrong] = whole[wrong].to("meta")
                with self.assertRaisesRegex(ValueError, "^a tensor on meta"):
                    hvd.grouped_allreduce(whole, name=f"units {wrong}")
                continue
            work = hvd.grouped_allreduce_async(whole, name=f"units {wrong}")
            self.assertEqual(len(work._flights), units)
            for flight in work._flights:
                with self.assertRaisesRegex(hvd.Error, "refused .*on meta"):
                    flight.wait(time.monotonic() + 60)
            with self.assertRaises(hvd.Error):
                work.wait()
        self.assertEqual(hvd.allreduce(torch.ones(1)).item(), 1)

    def test_without_an_engine_everything_says_what_to_do(self):
        hvd.shutdown()
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for call in (lambda: hvd.allreduce(torch.ones(1)), lambda: hvd.broadcast_parameters(model.state_dict()),
                     lambda: hvd.broadcast_optimizer_state(optimizer), hvd.rank):
            with self.assertRaisesRegex(ValueError, r"call init\(\) first"):
                call()
        hvd.init()

    def test_gradients_flow_through_operations(self):
        def gradient(operation, rows=1):
            tensor = torch.full((rows, 2), 1.0, requires_grad=True)
            (operation(tensor) * torch.arange(1.0, 3.0)).sum().backward()
            return tensor.grad[0].tolist()

        n, rank = self.size, self.rank
        for operation, rows, first in (
                (hvd.allreduce, 1, 1), (lambda t: hvd.allreduce(t, op=hvd.Sum, postscale_factor=0.5, name="x"), 1, n / 2),
                (lambda t: hvd.allgather(t)[:rank + 1], 1, (n - rank) / n),
                (lambda t: hvd.broadcast(t, n - 1), 1, int(rank == n - 1)),
                (lambda t: hvd.alltoall(t, [1] * n)[0], n, 1), (hvd.alltoall, n, 1),
                (lambda t: hvd.reducescatter(t, op=hvd.Sum), n, n), (hvd.reducescatter, n, 1)):
            for got, expected in zip(gradient(operation, rows), (first, 2 * first)):
                self.assertAlmostEqual(got, expected, places=5)
        with self.assertRaisesRegex(NotImplementedError, "MAX"):
            gradient(lambda t: hvd.allreduce(t, op=hvd.Max))


class Training(Ranks):
    def assert_same(self, model, reference, tolerance=1e-6):
        for (name, one), other in zip(model.state_dict().items(), reference.state_dict().values()):
            self.assertTrue(torch.allclose(one, other, atol=tolerance), name)
            self.assertTrue(torch.equal(one, hvd.broadcast(one, 0)), f"{name} differs between ranks")

    def reference(self, make, steps=4, clip=None, after=None):
        model = make_model()
        optimizer = make(model)
        for step in range(steps):
            optimizer.zero_grad()
            images, wanted = data(step)
            F.mse_loss(model(images), wanted).backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if after:
                after(optimizer)
        return model

    def train(self, make, steps=4, passes=1, clip=None, to_none=True, **options):
        model = make_model(seed=1 + self.rank)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(make(model), named_parameters=model.named_parameters(),
                                             backward_passes_per_step=passes, **options)
        for step in range(steps):
            optimizer.zero_grad(set_to_none=to_none)
            images, wanted = map(share, data(step))
            for part, goal in zip(images.chunk(passes), wanted.chunk(passes)):
                (F.mse_loss(model(part), goal) / passes).backward()
            if clip:
                optimizer.synchronize()
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()
        return model

    @staticmethod
    def sgd(model):
        return torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1, momentum=0.9)

    @staticmethod
    def adam(model):
        return torch.optim.Adam(model.parameters(), lr=0.01)

    def test_ranks_with_shares_are_one_process_with_the_whole_batch(self):
        reference = self.reference(self.sgd)
        # In an optimiser of Horovod's convention a parameter that nothing uses has zeros as its gradient.
        for options in ({}, {"to_none": False}, {"passes": 2}, {"groups": 2}, {"groups": 100},
                        {"gradient_predivide_factor": 2.0}):
            self.assert_same(self.train(self.sgd, **options), reference)
        self.assert_same(self.train(self.sgd, compression=hvd.Compression.fp16), reference, 2e-3)
        self.assert_same(self.train(self.sgd, clip=0.1), self.reference(self.sgd, clip=0.1))
        self.assert_same(self.train(self.adam), self.reference(self.adam), 1e-4)

    def test_groups_of_parameters(self):
        model = make_model()
        optimizer = hvd.DistributedOptimizer(self.sgd(model), named_parameters=model.named_parameters(),
                                             groups=[[model.first.weight, model.unused], [model.conv.bias]])
        images, wanted = map(share, data(0))
        F.mse_loss(model(images), wanted).backward()
        optimizer.step()
        self.assert_same(model, self.reference(self.sgd, steps=1))
        for wrong in ([[model.conv.bias], [model.conv.bias]], [["x"]], -1):
            with self.assertRaises(ValueError):
                hvd.DistributedOptimizer(self.sgd(model), groups=wrong)

    def test_a_scheduler_from_before_does_not_go_past_the_averaging(self):
        def stepped(make_optimizer):
            model = make_model()
            plain = self.sgd(model)
            scheduler = torch.optim.lr_scheduler.StepLR(plain, 1, 0.5)
            optimizer = make_optimizer(plain)
            for step in range(3):
                optimizer.zero_grad()
                images, wanted = data(step) if optimizer is plain else map(share, data(step))
                F.mse_loss(model(images), wanted).backward()
                optimizer.step()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # it does not see the steps of the other object
                    scheduler.step()
            return model

        self.assert_same(stepped(hvd.DistributedOptimizer), stepped(lambda plain: plain))

    def test_a_closure_is_averaged_in_each_call(self):
        def minimize(wrap, part):
            model = make_model()
            optimizer = wrap(torch.optim.LBFGS([model.first.bias, model.tied.bias], lr=0.5, max_iter=4))
            images, wanted = map(part, data(0))

            def closure():
                optimizer.zero_grad()
                loss = F.mse_loss(model(images), wanted)
                loss.backward()
                return loss

            optimizer.step(closure)
            return model

        self.assert_same(minimize(hvd.DistributedOptimizer, share), minimize(lambda it: it, lambda it: it), 1e-5)

    def test_a_line_search_keeps_the_ranks_equal(self):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.ones(4))
        images = torch.randn(self.size, 20, 4)[self.rank] * (1 + 5 * self.rank)
        wanted = torch.randn(self.size, 20)[self.rank]
        optimizer = hvd.DistributedOptimizer(torch.optim.LBFGS([weight], lr=0.1, max_iter=20,
                                                               line_search_fn="strong_wolfe"),
                                             named_parameters=[("weight", weight)])

        def closure():
            optimizer.zero_grad()
            loss = (images @ weight - wanted).square().mean()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
            self.assertEqual(hvd.allgather(weight.detach()).tolist(), self.size * weight.tolist())

    def test_the_loss_of_a_closure_is_averaged(self):
        parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
        for op, factor in ((hvd.Average, 1), (hvd.Sum, self.size)):
            optimizers = [hvd.DistributedOptimizer(torch.optim.SGD([one], lr=0.1), [(str(i), one)], op=op)
                          for i, one in enumerate(parameters)]
            mean = factor * (self.size + 1) / 2
            inner = lambda: optimizers[1].step(lambda: self.rank + 1)  # noqa: E731, one inside of the other
            self.assertAlmostEqual(optimizers[0].step(inner), factor * mean)
            loss = optimizers[0].step(lambda: torch.full((2,), self.rank + 1, dtype=torch.float64))
            self.assertTrue(torch.equal(loss, torch.full((2,), mean, dtype=torch.float64)))
            self.assertIsNone(optimizers[0].step(lambda: None))

    def test_what_only_one_rank_used_is_averaged(self):
        model = torch.nn.ModuleList([torch.nn.Linear(2, 1, bias=False), torch.nn.Linear(2, 1, bias=False)])
        for one in model:
            torch.nn.init.ones_(one.weight)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0),
                                             named_parameters=model.named_parameters())
        model[0 if self.rank == 0 else 1](torch.ones(1, 2)).sum().backward()
        optimizer.step()
        self.assertTrue(torch.allclose(model[0].weight, torch.full((1, 2), 1 - 1 / self.size)))
        self.assertTrue(torch.allclose(model[1].weight, torch.full((1, 2), 1 - (self.size - 1) / self.size)))

    def test_sparse_gradients(self):
        def rows(rank):
            return torch.tensor([[0, 1, 1], [1, 2, 5 + rank]])

        dense = torch.nn.Embedding(9, 3)
        torch.nn.init.ones_(dense.weight)
        optimizer = torch.optim.SGD(dense.parameters(), lr=0.5)
        for _ in range(2):
            optimizer.zero_grad()
            sum(dense(rows(rank)).square().sum() for rank in range(self.size)).backward()
            dense.weight.grad /= self.size
            optimizer.step()
        for as_dense in (False, True):
            sparse = torch.nn.Embedding(9, 3, sparse=True)
            torch.nn.init.ones_(sparse.weight)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(sparse.parameters(), lr=0.5),
                                                 sparse_as_dense=as_dense)
            for _ in range(2):
                optimizer.zero_grad()
                sparse(rows(self.rank)).square().sum().backward()
                optimizer.step()
                self.assertTrue(sparse.weight.grad.is_sparse)
            optimizer.zero_grad()
            if self.rank == 0:  # the others know by now that it is sparse
                sparse(rows(0)).sum().backward()
            optimizer.synchronize()
            self.assertEqual(sparse.weight.grad.to_dense()[1].tolist(), [3 / self.size] * 3)
            self.assertTrue(torch.allclose(sparse.weight, dense.weight))

    def test_a_model_may_get_another_optimiser(self):
        model = torch.nn.Linear(1, 1)
        for _ in range(2):
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                                 named_parameters=model.named_parameters())
            model(torch.full((1, 1), float(self.rank))).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            del optimizer  # and it is gone, before anything is collected
        model(torch.ones(1, 1)).sum().backward()  # averages nothing, and so needs no step

    def test_parameters_may_come_later(self):
        first, later = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(first.parameters(), lr=0.1))
        optimizer.add_param_group({"params": later.parameters()})
        later(first(torch.full((1, 1), float(self.rank)))).sum().backward()
        optimizer.synchronize()
        self.assertTrue(torch.equal(later.weight.grad, hvd.broadcast(later.weight.grad, 0)))

    def test_what_is_thawed_later_is_averaged(self):
        for named, passes in ((True, 1), (False, 2)):
            first, thawed, alone = (torch.nn.Parameter(torch.zeros(3), requires_grad=not i) for i in range(3))
            parameters = [("first", first), ("thawed", thawed), ("alone", alone)]
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD([first, thawed, alone], lr=1.0),
                                                 named_parameters=parameters if named else None,
                                                 backward_passes_per_step=passes, groups=[[thawed, first]])
            for step in range(3):
                optimizer.zero_grad()
                thawed.requires_grad_(step > 0)
                alone.requires_grad_(step > 0)  # only one rank uses it
                for _ in range(passes):
                    ((first + thawed + (alone if self.rank == 0 else 0)) * (self.rank + 1) / passes).sum().backward()
                if step == 1:
                    optimizer.synchronize()
                    with optimizer.skip_synchronize():
                        optimizer.step()
                else:
                    optimizer.step()
            mean = (self.size + 1) / 2
            for parameter, expected in ((first, -3 * mean), (thawed, -2 * mean), (alone, -2 / self.size)):
                self.assertTrue(torch.allclose(parameter, torch.full((3,), expected)), parameter)
            later = torch.nn.Parameter(torch.zeros(1))
            optimizer.param_groups[0]["params"].append(later)  # not by add_param_group()
            (later * (self.rank + 1)).sum().backward()
            optimizer.step()
            self.assertAlmostEqual(later.item(), -mean)

    def test_a_step_that_was_left_out_is_an_error_on_all_ranks(self):
        for way in ("begin_step", "step", "closure"):
            parameter = torch.nn.Parameter(torch.zeros(3))
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0),
                                                 named_parameters=[(f"numbered by {way}", parameter)])

            def backward(optimizer=optimizer, parameter=parameter):
                optimizer.zero_grad()
                loss = (parameter * number).sum()
                loss.backward()
                return loss

            error = None
            for number in range(6):
                if number == 3 and self.rank == self.size - 1:
                    continue  # its loss was no number
                try:
                    if way == "begin_step":
                        optimizer.begin_step(number)
                    if way != "closure":
                        backward()
                    optimizer.step(backward if way == "closure" else None, number=None if way == "begin_step" else number)
                except RuntimeError as caught:
                    error = str(caught)
                    break
            if self.size == 1:
                self.assertTrue(torch.equal(parameter, torch.full((3,), -12.0)), (way, parameter))
                continue
            self.assertRegex(error or "", rf"is in step 3, rank {self.size - 1} is in step 4: .* has left one out")
            self.assertTrue(torch.equal(parameter, torch.full((3,), -3.0)), (way, parameter))

    def test_a_step_that_does_not_average_has_the_number_of_the_average(self):
        parameter = torch.nn.Parameter(torch.zeros(3))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0))
        for begun, number in ((1, 1), (2, None), (3, 4), (None, 5)):
            optimizer.zero_grad()
            if begun is not None:
                optimizer.begin_step(begun)
            parameter.sum().backward()
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                if number in (None, begun):
                    optimizer.step(number=number)
                    continue
                with self.assertRaisesRegex(ValueError, rf"had {begun or 'no number'}: call begin_step\({number}\)"):
                    optimizer.step(number=number)
        self.assertTrue(torch.equal(parameter, torch.full((3,), -2.0)), parameter)

    def test_misuse_is_refused(self):
        model = torch.nn.Linear(1, 1)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        self.assertIsInstance(optimizer, torch.optim.SGD)
        with self.assertRaisesRegex(ValueError, "already"):
            hvd.DistributedOptimizer(optimizer)
        with self.assertRaisesRegex(NotImplementedError, "Adasum"):
            hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum)
        with self.assertRaisesRegex(ValueError, "gradient_predivide_factor"):
            hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Sum,
                                     gradient_predivide_factor=2)
        with self.assertRaisesRegex(NotImplementedError, "elastic"):
            _ = hvd.elastic
        if self.size > 1:
            model(torch.ones(1, 1)).sum().backward()
            with self.assertRaisesRegex(AssertionError, "zero_grad"):
                optimizer.zero_grad()
            with self.assertRaisesRegex(AssertionError, "backward_passes_per_step"):
                model(torch.ones(1, 1)).sum().backward()
            optimizer.step()


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
