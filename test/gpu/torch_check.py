#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ronde.torch with tensors on a GPU, each operation against the same one in host memory.

    ronderun -np N python3 test/gpu/torch_check.py [nccl]

nccl: ranks that share the GPU tell NCCL that they are on hosts of their own; else their tensors are staged through
host memory. Exit code 77: there is no GPU. The numbers are small integers, which every order of summing gives alike.
"""
import os
import sys

RANK = int(os.environ.get("RONDE_RANK", "0"))
if "nccl" in sys.argv[1:]:
    os.environ.update({"NCCL_HOSTID": f"rank{RANK}", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1",
                       "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_CUMEM_ENABLE": "0",
                       "NCCL_NVLS_ENABLE": "0", "NCCL_MNNVL_ENABLE": "0"})

import unittest  # noqa: E402

import torch  # noqa: E402

import ronde.torch as hvd  # noqa: E402

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)


def numbers(count: int, dtype: torch.dtype, shift: int = 0) -> torch.Tensor:
    return ((torch.arange(count) + 3 * hvd.rank() + shift) % 5 + 1).to(dtype)


class Operations(unittest.TestCase):
    """On the GPU and in host memory, under two names."""

    def same(self, name, operation, *tensors):
        here = operation(f"{name}.cpu", *(tensor.clone() for tensor in tensors))
        there = operation(f"{name}.cuda", *(tensor.cuda() for tensor in tensors))
        pairs = zip(here, there) if isinstance(here, (list, tuple)) else [(here, there)]
        for on_cpu, on_gpu in pairs:
            if on_cpu.dtype is not torch.int32 or on_gpu.is_cuda:  # received splits are the host's
                self.assertTrue(on_gpu.is_cuda, name)
            self.assertTrue(torch.equal(on_cpu, on_gpu.cpu()), f"{name}: {on_cpu.flatten()[:9]} is not {on_gpu.flatten()[:9]}")

    def test_reductions_of_every_type(self):
        for dtype in TYPES:
            for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max):
                if dtype is torch.uint8 and op is hvd.Average:
                    continue  # is refused: its sum would wrap around
                with self.subTest(dtype=dtype, op=op):
                    for count in (1, 1000, 300_001):
                        self.same(f"allreduce.{dtype}.{op}.{count}",
                                  lambda name, one, op=op: hvd.allreduce(one, name=name, op=op), numbers(count, dtype))

    def test_in_place_grouped_scaled_and_in_16_bits(self):
        def in_place(name, one):
            self.assertIs(hvd.allreduce_(one, name=name, op=hvd.Sum), one)
            return one
        self.same("in place", in_place, numbers(500, torch.float32))
        self.same("views", lambda name, one: hvd.allreduce(one.view(20, 25).t(), name=name, op=hvd.Sum),
                  numbers(500, torch.float32))
        self.same("grouped", lambda name, *all: hvd.grouped_allreduce(list(all), name=name, op=hvd.Sum),
                  numbers(10, torch.float32), numbers(400_000, torch.float32), numbers(33, torch.float32))
        self.same("scaled", lambda name, one: hvd.allreduce(one, name=name, op=hvd.Sum, prescale_factor=0.5,
                                                            postscale_factor=4.0), numbers(700, torch.float32))
        self.same("fp16", lambda name, one: hvd.allreduce(one, name=name, compression=hvd.Compression.fp16),
                  numbers(2048, torch.float32))

    def test_what_moves(self):
        root = hvd.size() - 1
        self.same("broadcast", lambda name, one: hvd.broadcast(one, root, name=name), numbers(1234, torch.float32))
        rows = torch.ones(hvd.rank() + 2, 3, dtype=torch.int64) * hvd.rank()
        self.same("allgather", lambda name, one: hvd.allgather(one, name=name), rows)
        self.same("allgather bf16", lambda name, one: hvd.allgather(one, name=name), rows.to(torch.bfloat16))
        self.same("allgather of nothing", lambda name, one: hvd.allgather(one, name=name), torch.empty(0, 4))
        self.same("reducescatter", lambda name, one: hvd.reducescatter(one, name=name, op=hvd.Sum),
                  numbers(10 * hvd.size() + 3, torch.float32))
        splits = torch.arange(1, hvd.size() + 1)
        total = int(splits.sum())
        self.same("alltoall", lambda name, one: hvd.alltoall(one, splits, name=name), numbers(total, torch.float32))

    def test_a_tensor_is_read_behind_its_stream(self):
        stream = torch.cuda.Stream()
        for i in range(20):
            with torch.cuda.stream(stream):
                one = torch.zeros(1 << 20, device="cuda")
                for _ in range(50):
                    one += 1
                work = hvd.allreduce_async_(one, name=f"behind its stream {i}", op=hvd.Sum)
            self.assertTrue(torch.equal(hvd.synchronize(work).cpu(), torch.full((1 << 20,), 50.0 * hvd.size())))

    def test_a_result_that_goes_is_not_given_away_before_its_stream_has_read_it(self):
        stream = torch.cuda.Stream()
        big = torch.ones(4096, 4096, device="cuda")
        torch.cuda.synchronize()
        for i in range(10):
            with torch.cuda.stream(stream):
                one = hvd.allgather(torch.full((1 << 18,), float(i), device="cuda"), name=f"first {i}")
                for _ in range(10):
                    big = big @ big * 1e-4  # the stream is late
                kept = one + 0
                del one
                other = hvd.allgather(torch.full((1 << 18,), -1.0, device="cuda"), name=f"second {i}")
            stream.synchronize()
            self.assertTrue(bool((kept == float(i)).all()), i)
            self.assertTrue(bool((other == -1).all()), i)

    def test_a_second_engine_opens_and_tensors_outlive_engines(self):
        if "nccl" in sys.argv[1:]:
            return  # one after the other is tried through host memory
        one = torch.ones(5, device="cuda")
        hvd.shutdown()
        self.assertEqual((one + 1).sum().item(), 10)
        hvd.init()
        self.assertEqual(hvd.allreduce(one, name="again", op=hvd.Sum).sum().item(), 5 * hvd.size())

    def test_a_tensor_of_no_device_of_this_rank_is_an_error_on_every_rank(self):
        # Memory of a GPU under the name of another one, which only the library can refuse.
        if hvd.size() == 1:
            return
        arrays = hvd._functions.operations._arrays
        one = torch.ones(4, device="cuda")
        memory = arrays.memory
        if hvd.rank() == 0:
            arrays.memory = lambda tensor: memory(tensor)._replace(device=7)
        try:
            with self.assertRaisesRegex(hvd.Error, "refused" if hvd.rank() else "device 7"):
                hvd.allreduce(one, name="of another device")
        finally:
            arrays.__dict__.pop("memory", None)
        self.assertEqual(hvd.allreduce(one, name="goes on", op=hvd.Sum)[0].item(), hvd.size())

    def test_process_sets_and_weights(self):
        if hvd.size() > 1:
            alone = hvd.add_process_set([hvd.size() - 1])
            if alone.included():
                for count in (1000, 300_001):
                    self.same(f"alone {count}", lambda name, one: hvd.allreduce(one, name=name, op=hvd.Sum,
                                                                                process_set=alone),
                              numbers(count, torch.float32))
            hvd.remove_process_set(alone)
        if hvd.size() > 1 and "nccl" not in sys.argv[1:]:  # staged
            self.same("weighted", lambda name, one: hvd.allreduce(one, name=name, op=hvd.Average,
                                                                  weight=hvd.rank() + 1.0), torch.full((2000,), 3.0))
            return
        with self.assertRaisesRegex(hvd.Error, "average in host memory"):
            hvd.allreduce(torch.ones(2000, device="cuda"), name="weighted", op=hvd.Average, weight=hvd.rank() + 1.0)

    def test_a_joined_rank_ends_what_is_on_a_gpu_by_name(self):
        if hvd.rank() > 0:
            with self.assertRaisesRegex(hvd.Error, "rank 0 has joined"):
                hvd.allreduce(torch.ones(1000, device="cuda"), name="late")
        self.assertLess(hvd.join(), hvd.size())

    def test_gradients_flow_back(self):
        one = numbers(6, torch.float32).cuda().requires_grad_()
        hvd.allreduce(one, name="forward", op=hvd.Sum).sum().backward()
        self.assertTrue(torch.equal(one.grad.cpu(), torch.full((6,), float(hvd.size()))))

    def test_a_training_is_the_one_in_host_memory(self):
        def train(device):
            torch.manual_seed(hvd.rank())
            model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)).to(device)
            plain = torch.optim.Adam(model.parameters(), 0.01)
            if hvd.rank() == 0:  # the root's state is the one that counts
                model(torch.ones(1, 8, device=device)).sum().backward()
                plain.step()
                plain.zero_grad()
            hvd.broadcast_parameters(model.state_dict(), 0)
            hvd.broadcast_optimizer_state(plain, 0)
            optimizer = hvd.DistributedOptimizer(plain, [(f"{device}.{name}", one)
                                                         for name, one in model.named_parameters()])
            generator = torch.Generator().manual_seed(hvd.rank())
            for _ in range(20):
                inputs = torch.randn(32, 8, generator=generator).to(device)
                optimizer.zero_grad()
                (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
                optimizer.step()
            return torch.cat([one.detach().cpu().flatten() for one in model.parameters()])
        cpu, cuda = train("cpu"), train("cuda")
        self.assertLess((cpu - cuda).abs().max().item(), 1e-3)
        ranks = hvd.allgather(cuda.unsqueeze(0), name="ranks")
        self.assertTrue(all(torch.equal(row, ranks[0]) for row in ranks))

    def test_a_rank_that_has_it_in_host_memory_is_named(self):
        if hvd.size() == 1:
            self.skipTest("one rank has no other")
        device = "cpu" if hvd.rank() == 0 else "cuda"
        with self.assertRaisesRegex(hvd.Error, "rank 0"):
            hvd.allreduce(torch.ones(4, device=device), name="here and there")


def main() -> None:
    if not torch.cuda.is_available():
        print("there is no GPU")
        sys.exit(77)
    hvd.init()
    result = unittest.TextTestRunner(verbosity=2 if hvd.rank() == 0 else 0).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(Operations))
    hvd.shutdown()
    sys.exit(0 if result.wasSuccessful() else 1)


if __name__ == "__main__":
    main()
