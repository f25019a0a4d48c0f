#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small programs over the back end "ronde" as people write them: compiled models and collectives, sharded models, DTensor,
checkpoints, and with their packages Lightning and Hugging Face's accelerate.

usage: torch_programs.py [--backend ronde] [--ranks 2]

Each gives what one process with the whole batch, or arithmetic, gives. All pass over gloo, too (--backend gloo). Needs
a PyTorch that has back ends in Python, as 2.15; with an older one it does nothing.
"""
import importlib.util
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
import unittest.mock

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

import ronde.torch
from ronde.torch._backend import has_python_backends
from torch_group_kit import Ranks, main

STEPS = 3


def make_model():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 6))


def batch(step):
    return torch.randn(12, 6, generator=torch.Generator().manual_seed(step))


def train(model, share=lambda values: values):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        F.mse_loss(model(share(batch(step))), torch.ones(())).backward()
        optimizer.step()
    return model


class ProgramCase(Ranks):
    def share(self, values):
        return values.chunk(self.size)[self.rank]

    def assert_trained(self, parameters):
        """They are those of one process that has seen the whole batches."""
        for one, other in zip(parameters, train(make_model()).parameters(), strict=True):
            self.assertTrue(torch.allclose(one, other, atol=1e-5))

    def shared_folder(self):
        folder = [tempfile.mkdtemp(prefix="torch_programs_") if self.rank == 0 else None]
        dist.broadcast_object_list(folder, 0)
        if self.rank == 0:
            self.addCleanup(shutil.rmtree, folder[0])
        self.addCleanup(dist.barrier)  # before that: cleanups run in reverse order
        return folder[0]


class Meshes(ProgramCase):
    """A mesh of devices has a group for each of its rows and columns."""

    def test_two_by_two(self):
        if self.size != 4:
            self.skipTest("needs four ranks")
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
        for name, total in (("data", 2 * (self.rank % 2) + 2), ("tensor", 4 * (self.rank // 2) + 1)):
            tensor = torch.tensor([float(self.rank)])
            dist.all_reduce(tensor, group=mesh[name].get_group())
            self.assertEqual(tensor.item(), total)
        whole = torch.arange(16.0).reshape(4, 4)
        one = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
        self.assertEqual(one.to_local().shape, (2, 2))
        product = (one @ one).redistribute(mesh, [Replicate(), Replicate()])
        self.assert_is(product.to_local(), whole @ whole)


class Compiled(ProgramCase):
    """O1"""

    def setUp(self):
        super().setUp()
        torch._dynamo.reset()

    def test_a_compiled_parallel_model(self):
        with unittest.mock.patch.object(F, "mse_loss", lambda values, _: (values - 1).square().mean()):
            model = torch.compile(DistributedDataParallel(make_model()), backend="eager")
            self.assert_trained(train(model, self.share).parameters())

    def test_a_compiled_model_in_parallel(self):
        model = DistributedDataParallel(torch.compile(make_model(), backend="eager"))
        self.assert_trained(train(model, self.share).parameters())

    def test_operations_in_a_compiled_function(self):
        def program(values):
            dist.all_reduce(values)
            work = dist.all_reduce(values, async_op=True)
            work.wait()
            dist.broadcast(values, 0)
            dist.reduce(values, 0)
            return values + 1

        expected = program(torch.ones(3))
        self.assert_is(torch.compile(program, backend="eager")(torch.ones(3)), expected)
        parts = [torch.full((count,), float(self.rank)) for count in (3, 2)]
        torch.compile(lambda: dist._broadcast_coalesced(dist.group.WORLD, parts, 1024, 0), backend="eager")()
        self.assert_is(torch.cat(parts), torch.zeros(5))

    def test_functional_operations_in_one_graph(self):
        from torch.distributed import _functional_collectives as functional

        def program(values):
            total = functional.all_reduce(values, "sum", dist.group.WORLD)
            rows = functional.all_gather_tensor(total, 0, dist.group.WORLD)
            return functional.reduce_scatter_tensor(rows, "sum", 0, dist.group.WORLD) * 2

        values = torch.arange(4.0) + self.rank
        expected = sum(torch.arange(4.0) + rank for rank in self.all) * self.size * 2
        self.assert_is(torch.compile(program, backend="aot_eager", fullgraph=True)(values), expected)


class Sharded(ProgramCase):
    def mesh(self):
        return torch.distributed.device_mesh.init_device_mesh("cpu", (self.size,))

    def sharded(self):
        from torch.distributed.fsdp import fully_shard
        model = make_model()
        for part in model:
            if list(part.parameters()):
                fully_shard(part, mesh=self.mesh())
        return fully_shard(model, mesh=self.mesh())

    def test_fully_sharded_models(self):
        model = train(self.sharded(), self.share)
        self.assert_trained(parameter.full_tensor() for parameter in model.parameters())

    def test_buffers_on_the_board(self):
        """The same numbers; other ranks read shards and gradients where they lie."""
        from torch.distributed.fsdp import fully_shard

        def make():
            torch.manual_seed(3)
            model = torch.nn.Sequential(torch.nn.Linear(6, 300), torch.nn.ReLU(), torch.nn.Linear(300, 500),
                                        torch.nn.ReLU(), torch.nn.Linear(500, 6))
            for part in model:
                if list(part.parameters()):
                    fully_shard(part, mesh=self.mesh())
            return fully_shard(model, mesh=self.mesh())

        plain = [one.full_tensor() for one in train(make(), self.share).parameters()]
        model = make()
        if dist.get_backend() != "ronde":
            with self.assertRaisesRegex(ronde.InvalidArgument, "groups of the back end ronde, and not of"):
                ronde.torch.keep_buffers_on_board(model)
            return
        engine = dist.group.WORLD._get_backend(torch.device("cpu"))._engine
        before = engine.statistics()["in_place_bytes"]
        ronde.torch.keep_buffers_on_board(model)
        train(model, self.share)
        moved = engine.statistics()["in_place_bytes"] - before
        most = 300 * 500 * 4  # of the large layer: one gather forwards, one backwards, one sum
        self.assertGreater(moved, STEPS * most)
        for one, other in zip(plain, model.parameters(), strict=True):
            self.assert_is(other.full_tensor(), one)

    def test_tensors_that_are_distributed(self):
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
        whole = torch.arange(24.0).reshape(4 * 3, 2)
        rows = distribute_tensor(whole, self.mesh(), [Shard(0)])
        self.assertLess(rows.to_local().shape[0], 12 if self.size > 1 else 13)
        product = rows.t() @ rows
        self.assert_is(product.full_tensor(), whole.t() @ whole)
        self.assert_is(rows.redistribute(placements=[Replicate()]).to_local(), whole)
        columns = rows.redistribute(placements=[Shard(1)])
        self.assert_is(columns.full_tensor(), whole)

    def test_checkpoints(self):
        """O4: in this thread and in another one."""
        import torch.distributed.checkpoint as checkpoint
        for save in (lambda state, folder: checkpoint.save(state, checkpoint_id=folder),
                     lambda state, folder: checkpoint.async_save(state, checkpoint_id=folder).result()):
            folder = self.shared_folder()
            state = train(self.sharded(), self.share).state_dict()
            save(state, folder)
            dist.barrier()
            self.assertTrue(list(pathlib.Path(folder).glob("*.distcp")))
            read = self.sharded().state_dict()
            checkpoint.load(read, checkpoint_id=folder)
            for name, tensor in state.items():
                self.assert_is(read[name].full_tensor(), tensor.full_tensor())


class Frameworks(ProgramCase):
    @unittest.skipUnless(importlib.util.find_spec("accelerate"), "needs the package accelerate")
    def test_accelerate(self):
        import accelerate
        there = {"RANK": self.rank, "LOCAL_RANK": self.rank, "WORLD_SIZE": self.size, "MASTER_ADDR": "127.0.0.1"}
        with unittest.mock.patch.dict(os.environ, {name: str(value) for name, value in there.items()}):
            backend = dist.get_backend()
            accelerator = accelerate.Accelerator(cpu=True)
        self.assertEqual((accelerator.num_processes, accelerator.process_index), (self.size, self.rank))
        model = accelerator.prepare(make_model())
        self.assertIsInstance(model, DistributedDataParallel)
        optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
        for step in range(STEPS):
            optimizer.zero_grad()
            accelerator.backward(F.mse_loss(model(self.share(batch(step))), torch.ones(())))
            optimizer.step()
        self.assert_trained(model.parameters())
        gathered = accelerator.gather(torch.tensor([self.rank]))
        self.assert_is(gathered, torch.arange(self.size))
        self.assertEqual(dist.get_backend(), backend)

    @unittest.skipUnless(importlib.util.find_spec("lightning"), "needs the package lightning")
    def test_lightning(self):
        import lightning
        from lightning.fabric.plugins.environments import LightningEnvironment
        from lightning.pytorch.strategies import DDPStrategy
        rank, size = self.rank, self.size

        class Here(LightningEnvironment):
            """The ranks are there already."""
            creates_processes_externally = True

            def global_rank(self):
                return rank

            def local_rank(self):
                return rank

            def world_size(self):
                return size

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.model = make_model()

            def training_step(self, values, _):
                return F.mse_loss(self.model(values), torch.ones(()))

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

        module = Module()
        trainer = lightning.Trainer(
            accelerator="cpu", devices=size, max_epochs=1, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False, plugins=[Here()],
            strategy=DDPStrategy(process_group_backend=dist.get_backend()), default_root_dir=self.shared_folder())
        shares = [self.share(batch(step)) for step in range(STEPS)]
        trainer.fit(module, torch.utils.data.DataLoader(shares, batch_size=None))
        self.assertEqual((trainer.world_size, trainer.global_step), (size, STEPS))
        self.assert_trained(module.parameters())


if __name__ == "__main__":
    if not has_python_backends():
        print(f"PyTorch {torch.__version__} has no back ends in Python: nothing to test")
        sys.exit(0)
    sys.exit(main("torch_programs.py"))
