# SPDX-License-Identifier: Apache-2.0
"""What ranks disagree about, and what one of them must refuse, over the back end "ronde". torch_group.py runs this."""
import datetime

import torch
import torch.distributed as dist

import ronde.torch
from ronde.torch._backend import _parent_of, has_python_backends
from torch_group_kit import SECONDS, Ranks, make_group


class Errors(Ranks):
    def everywhere(self, pattern, call, status=ronde.Status.MISMATCH):
        """call() is an error on every rank, and the group lives on."""
        with self.assertRaisesRegex(RuntimeError, pattern) as caught:
            call()
        if type(caught.exception) is ronde.Error:
            self.assertEqual(caught.exception.status, status)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        self.assertEqual(tensor.item(), self.size)

    def test_what_ranks_disagree_about_is_an_error_on_every_rank(self):
        if self.size == 1:
            return
        first = self.rank == 0
        self.everywhere("rank 0 .*f64.*torch_group_errors.py.* rank", lambda: dist.all_reduce(
            torch.ones(2, dtype=torch.float64 if first else torch.float32)))
        self.everywhere(r"rank 0 .*\[3\]", lambda: dist.all_reduce(torch.ones(3 if first else 2)))
        self.everywhere("rank 0 .*broadcast", lambda: dist.broadcast(torch.ones(2), 0) if first
                        else dist.all_reduce(torch.ones(2)))
        with self.assertRaisesRegex(RuntimeError, "the ranks disagree"):  # those who wait in C++ hear it, too
            dist.all_reduce(torch.ones(3 if first else 2), async_op=True).get_future().wait()

    def test_what_one_rank_must_refuse_is_an_error_on_every_rank(self):
        wrong = {"meta": lambda: torch.ones(2, device="meta"),
                 "quint8": lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.quint8)}
        if has_python_backends():  # PyTorch sends neither to a back end of CPUs: meta tensors do nothing, as over gloo
            with self.assertRaisesRegex(NotImplementedError, "QuantizedCPU"):
                dist.broadcast(wrong["quint8"](), 0)
            wrong = {"float8": lambda: torch.ones(2).to(torch.float8_e5m2)}
        else:
            with self.assertRaisesRegex(ValueError, "scale"):
                dist.broadcast(wrong["quint8"](), 0)
            rows = torch.quantize_per_tensor(torch.ones(2 * self.size), 1.0, 0, torch.quint8)
            with self.assertRaisesRegex(ValueError, "scale"):
                dist._all_gather_base(rows, wrong["quint8"]())
        for word, make in wrong.items():
            self.everywhere(f"refused .*{word}|{word}", lambda make=make: dist.all_reduce(
                make() if self.rank == 0 else torch.ones(2)))
        self.everywhere("refused .*1 outputs|1 outputs for" if self.size > 1 else "2 outputs", lambda: dist.all_gather(
            [torch.ones(1)] * (self.size if self.rank else (1 if self.size > 1 else 2)), torch.ones(1)))

    def test_a_wait_may_be_shorter_than_the_operation(self):
        work = dist.all_reduce(torch.ones(1), async_op=True) if self.rank == 0 else None
        if self.rank == 0 and self.size > 1:
            with self.assertRaisesRegex(ronde.Error, "not done after 0.05 s"):
                work.wait(datetime.timedelta(seconds=0.05))
            self.assertFalse(work.is_completed())
        self.go("waited")
        if self.rank:
            work = dist.all_reduce(torch.ones(1), async_op=True)
        self.assertTrue(work.wait())

    def go(self, key):
        """Rank 0 lets the others go on."""
        store = dist.distributed_c10d._get_default_store()
        if self.rank == 0:
            store.set(f"go/{key}", "1")
        store.wait([f"go/{key}"], SECONDS)

    def test_after_the_timeout_of_a_group_it_fails_on_every_rank(self):
        if self.size == 1:
            return
        group = dist.new_group()
        # Not new_group(timeout=...), which also ends the meeting, which may be slow.
        group.set_timeout(datetime.timedelta(seconds=0.5))
        if self.rank == 0:
            others = "ranks? " + ", ".join(map(str, range(1, self.size)))
            with self.assertRaisesRegex(ronde.Error, r"called at torch_group_errors.py:\d+, was not done on all ranks within "
                                        f"the group's timeout of 0.5 s: after (0.[5-9]|[1-9].*) s {others} had not called"):
                dist.all_reduce(torch.ones(1), group=group)
        self.go("given up")
        with self.assertRaisesRegex(ronde.Error, "group"):
            dist.all_reduce(torch.ones(1), group=group)
        for other in (dist.new_group(), None):  # the job goes on
            tensor = torch.ones(1)
            dist.all_reduce(tensor, group=other)
            self.assertEqual(tensor.item(), self.size)

    def test_a_rank_that_never_comes_is_counted(self):
        with self.assertRaisesRegex(ronde.Error, r"1 of 2 ranks have called .* within 0\.1 s"):
            make_group(dist.HashStore(), 0, 2, datetime.timedelta(seconds=0.1), "lonely")

    def test_a_rank_that_never_opens_a_group_of_a_group_is_named(self):
        if self.rank == 0 and self.size > 1:
            with self.assertRaisesRegex(ronde.Error, r"'group lonely' of ranks 0-1 cannot open: rank 1 did not open it within"):
                make_group(dist.HashStore(), 0, 2, datetime.timedelta(seconds=0.1), "lonely", _parent_of([0, 1]))
