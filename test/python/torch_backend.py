#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch expects of a back end beside its operations: names, devices, hooks, timeouts, ends.

usage: torch_backend.py [--backend ronde] [--ranks 2]

Each test passes over gloo, too (--backend gloo), where gloo has what it is about. Needs a PyTorch that has back ends in
Python, as 2.15; with an older one it does nothing.
"""
import copy
import datetime
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

import ronde
from ronde.torch._backend import has_python_backends
from torch_group_kit import SECONDS, Ranks, main

CPU = torch.device("cpu")


def seconds(number):
    return datetime.timedelta(seconds=number)


class BackendCase(Ranks):
    def setUp(self):
        super().setUp()
        self.backend = dist.get_backend()
        self.is_ronde = self.backend == "ronde"
        self.store = dist.distributed_c10d._get_default_store()

    def only_ronde(self):
        if not self.is_ronde:
            self.skipTest("of ronde alone")

    def own_backend(self, group=None):
        return (group or dist.group.WORLD)._get_backend(CPU)

    def after(self, rank, key):
        """Lets the other ranks go on once this rank has come here."""
        key = f"{self.id()}/{key}"
        if self.rank == rank:
            self.store.set(key, "1")
        self.store.wait([key], SECONDS)

    def raises_soon(self, pattern, call, least=0.0, most=5.0):
        began = time.monotonic()
        with self.assertRaisesRegex(RuntimeError, pattern) as caught:
            call()
        took = time.monotonic() - began
        self.assertTrue(least <= took <= most, f"after {took:.2f} s: {caught.exception}")
        return caught.exception


class Names(BackendCase):
    def test_a_group_is_pytorchs_own(self):
        group = dist.group.WORLD
        self.assertIs(type(group), dist.ProcessGroup)
        self.assertEqual([device for device in group._device_types if device.type != "cuda"], [CPU])  # gloo has both
        self.assertEqual((self.own_backend().name(), group.group_name, group.group_desc),
                         (self.backend, "0", "default_pg"))
        key = f"{self.id()}/{self.rank}"
        group.get_group_store().set(key, "here")
        self.assertEqual(group.get_group_store().get(key), b"here")
        self.assertEqual((self.own_backend().rank(), self.own_backend().size()), (self.rank, self.size))
        self.assertEqual(self.own_backend().options.backend, self.backend)
        before = group._get_sequence_number_for_group()
        dist.all_reduce(torch.ones(1))
        self.assertEqual(group._get_sequence_number_for_group(), before + 1)

    def test_what_it_cannot_do_it_says(self):
        """O3, O7: each of these would be False for ever, or an error without end, if it were left to PyTorch."""
        backend = self.own_backend()
        self.assertTrue(backend.supports_splitting)
        for name in ("coalescing", "shrinking", "window", "abort_hooks", "completion_hooks"):
            self.assertFalse(getattr(backend, f"supports_{name}"), name)
        self.assertFalse(backend._supports_time_estimate)
        with self.assertRaisesRegex(RuntimeError, f"(?i)completion hook.* {self.backend} backend"):
            dist.group.WORLD._register_on_completion_hook(lambda _: None)
        self.assertFalse(dist.group.WORLD._has_hooks())
        with self.assertRaisesRegex(RuntimeError, f"{self.backend} does not support registerAbortHook"):
            dist.group.WORLD.register_abort_hook(1, lambda: None)
        self.only_ronde()
        with self.assertRaisesRegex(RuntimeError, "ronde is missing implementation of enableCollectivesTiming"):
            dist.group.WORLD._enable_collectives_timing()
        with self.assertRaisesRegex(NotImplementedError, "_add_ephemeral_timeout"):
            backend._add_ephemeral_timeout(seconds(1))

    def test_reconfigure_is_refused_by_name(self):
        self.only_ronde()
        from torch.distributed.distributed_c10d import _DistributedBackendOptions as Options
        options = Options()
        options.enable_reconfigure = True
        with self.assertRaisesRegex(NotImplementedError, "enable_reconfigure=True: .* cannot change its ranks yet"):
            dist.Backend._plugins["RONDE"].creator_fn(options, None)

    def test_a_name_that_is_registered_is_available(self):
        """O10, but for the import."""
        self.assertTrue(dist.is_backend_available(self.backend))
        self.assertEqual(dist.Backend.backend_capability[self.backend][0], "cpu")


class Devices(BackendCase):
    """O3: a group of several devices has a back end for each."""

    def test_a_back_end_that_is_not_known_is_refused(self):
        with self.assertRaisesRegex(AssertionError, "(?i)unknown c10d backend type no_such"):
            dist.Backend.register_backend("no_such", lambda *_: None, devices=["meta"])
            del dist.Backend._plugins["NO_SUCH"]
            dist.new_group(backend=f"cpu:{self.backend},meta:no_such")

    def test_fake_beside_it(self):
        made = []
        from torch.testing._internal.distributed import fake_pg  # noqa: F401, registers "fake"
        plugin = dist.Backend._plugins["FAKE"]
        dist.Backend._plugins["FAKE"] = plugin._replace(
            creator_fn=lambda *arguments: made.append(1) or plugin.creator_fn(*arguments))
        try:
            group = dist.new_group(backend=f"cpu:{self.backend},meta:fake")
        finally:
            dist.Backend._plugins["FAKE"] = plugin
        self.assertEqual(made, [1])
        self.assertEqual({device.type for device in group._device_types}, {"cpu", "meta"})
        self.sums(group)

    def test_gloo_beside_it(self):
        group = dist.new_group(backend=f"cpu:{self.backend},meta:gloo")
        self.assertEqual(group._get_backend(torch.device("meta")).name(), "gloo")
        self.assertEqual(group._get_backend(CPU).name(), self.backend)
        self.sums(group)

    def sums(self, group):
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=group)
        self.assert_is(tensor, torch.full((2,), float(self.size)))
        dist.destroy_process_group(group)

    def test_groups_of_groups(self):
        halves = [[rank for rank in self.all if rank % 2 == half] for half in (0, 1)]
        mine = dist.split_group(split_ranks=halves)
        self.assertEqual(self.own_backend(mine).name(), self.backend)
        tensor = torch.tensor([float(self.rank)])
        dist.all_reduce(tensor, group=mine)
        self.assertEqual(tensor.item(), sum(halves[self.rank % 2]))
        dist.destroy_process_group(mine)
        if self.is_ronde and self.rank == 1:
            dist.destroy_process_group(dist.split_group(split_ranks=[[1]]))
        elif self.is_ronde:
            with self.assertRaisesRegex(NotImplementedError, "split_group: rank [02] is in none of the groups"):
                dist.split_group(split_ranks=[[1]])
        merged = dist.group.WORLD.merge_remote_group(dist.PrefixStore(self.id(), self.store), self.size)
        tensor = torch.ones(1)
        merged.allreduce([tensor]).wait()
        self.assertEqual(tensor.item(), self.size)
        merged.shutdown()


class Hooks(BackendCase):
    """O11"""

    def test_hooks_run_around_each_operation(self):
        group, seen, works = dist.new_group(), [], []
        group.register_pre_hook(7, lambda call: seen.append(("before", call.name.name, call.op_id)))
        group.register_post_hook(7, lambda call: (seen.append(("after", call.name.name, call.op_id)),
                                                  works.append(call.work)))
        dist.all_reduce(torch.ones(1), group=group)
        dist.barrier(group)
        first, second = seen[0][2], seen[2][2]
        self.assertEqual(seen, [("before", "ALLREDUCE", first), ("after", "ALLREDUCE", first),
                                ("before", "BARRIER", second), ("after", "BARRIER", second)])
        self.assertTrue(all(work.is_completed() for work in works))
        group.unregister_pre_hook(7)
        group.unregister_post_hook(7)
        dist.all_reduce(torch.ones(1), group=group)
        self.assertEqual(len(seen), 4)
        dist.destroy_process_group(group)

    def test_the_profiler_sees_operations(self):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            dist.all_reduce(torch.ones(4))
            dist.broadcast(torch.ones(4), 0)
        names = {event.name for event in profile.events()}
        self.assertLessEqual({"c10d::allreduce_", "c10d::broadcast_"}, names)


class Buckets(BackendCase):
    """Those of DistributedDataParallel lie on the board, and nothing else does."""

    def moved(self, group=None):
        backend = (group or dist.distributed_c10d._get_default_group())._get_backend(CPU)
        return backend._buckets._moved if self.is_ronde else set()

    def steps_of(self, share, group):
        """Each step's gradients are those of the whole batch, before and after PyTorch makes its buckets anew."""
        torch.manual_seed(5)
        model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.Linear(200, 90))
        alone = copy.deepcopy(model)
        parallel = DistributedDataParallel(model, gradient_as_bucket_view=share, process_group=group)
        for step in range(4):
            batch = torch.randn((self.size, 4, 300), generator=torch.Generator().manual_seed(step))
            parallel.zero_grad()
            alone.zero_grad()
            parallel(batch[self.rank]).square().mean().backward()
            alone(batch.flatten(0, 1)).square().mean().backward()
            for ours, expected in zip(model.parameters(), alone.parameters()):
                torch.testing.assert_close(ours.grad, expected.grad)
        return {one.grad.untyped_storage().data_ptr() for one in model.parameters()}

    def test_sums_are_made_in_place(self):
        for group in (None, dist.new_group()):
            for share in (False, True):
                storages = self.steps_of(share, group)
                if self.is_ronde:
                    self.assertTrue(self.moved(group))
                    self.assertEqual(storages <= self.moved(group), share)

    def test_they_outlive_their_group(self):
        group = dist.new_group()
        model = torch.nn.Linear(300, 90)
        parallel = DistributedDataParallel(model, gradient_as_bucket_view=True, process_group=group)
        parallel(torch.ones(1, 300)).sum().backward()
        dist.destroy_process_group(group)
        self.assert_is(model.weight.grad, torch.ones(90, 300))

    def test_memory_that_a_program_may_have_lent_stays(self):
        mine, lent = torch.ones(50000), torch.ones(50000)
        address, seen = mine.data_ptr(), lent.numpy()
        weight = torch.ones(2, requires_grad=True)
        weight.register_hook(lambda grad: (dist.all_reduce(mine), dist.all_reduce(lent)) and None)
        before = set(self.moved())
        weight.sum().backward()  # a backward pass of the program's own
        dist.all_reduce(mine)
        self.assertEqual(mine.data_ptr(), address)
        self.assertEqual((seen[0], seen[-1]), (self.size, self.size))
        self.assertEqual(self.moved(), before)


class Works(BackendCase):
    def test_a_work_can_be_asked(self):
        work = dist.all_reduce(torch.ones(1), async_op=True)
        until = time.monotonic() + SECONDS.total_seconds()
        while not work.is_completed():
            self.assertLess(time.monotonic(), until)
        self.assertTrue(work.is_success())
        self.assertIsNone(work.exception())
        self.assertEqual(work.result()[0].item(), self.size)

    def test_a_failed_work_says_so(self):
        self.only_ronde()  # gloo adds the two
        if self.size == 1:
            return
        work = dist.all_reduce(torch.ones(2 + self.rank), async_op=True)
        with self.assertRaisesRegex(ronde.Error, "disagree"):
            work.wait()
        self.assertTrue(work.is_completed() and not work.is_success())
        self.assertRegex(str(work.exception()), "disagree")
        self.assertEqual(self.own_backend().get_error(), c10d.ErrorType.SUCCESS)  # the group goes on

    def test_tensors_that_overlap_or_have_no_memory(self):
        """O15: what PyTorch says of them stays."""
        dist.all_reduce(torch.ones(2, device="meta"))
        self.only_ronde()  # gloo answers, by luck
        with self.assertRaisesRegex(RuntimeError, "more than one element of the written-to tensor"):
            dist.all_reduce(torch.ones(1).expand(4))


class Ends(BackendCase):
    def lonely(self, **options):
        """A group in which rank 0 alone calls."""
        if self.size == 1:
            self.skipTest("nobody else is there")
        return dist.new_group(**options)

    def test_a_timeout_holds_from_the_next_operation_on(self):
        """O5, O12"""
        for way, set_timeout in enumerate((lambda group: dist.set_timeout(seconds(0.6), group),
                                           lambda group: dist.distributed_c10d._set_pg_timeout(seconds(0.6), group))):
            group = self.lonely()
            dist.barrier(group)
            set_timeout(group)
            self.assertEqual(self.own_backend(group).options._timeout, seconds(0.6))
            if self.rank == 0:
                others = ", ".join(str(rank) for rank in self.all[1:])
                self.raises_soon(rf"timeout of 0\.6 s: after (0\.[6-9]|1\..) s ranks? {others} had not called"
                                 if self.is_ronde else "(?i)timed out", lambda: dist.all_reduce(torch.ones(1),
                                                                                               group=group), 0.5)
                if self.is_ronde:
                    self.assertEqual(self.own_backend(group).get_error(), c10d.ErrorType.TIMEOUT)
            self.after(0, f"way {way}")
            dist.destroy_process_group(group)

    def test_a_timeout_does_not_name_who_has_come(self):
        """O12, with a rank that waits, too, and one that never comes."""
        self.only_ronde()
        if self.size < 3:
            self.skipTest("needs three ranks")
        group = self.lonely()
        dist.barrier(group)
        group.set_timeout(seconds(1 if self.rank == 0 else 60))
        if self.rank == 2:
            self.after(0, "timeout")
        elif self.rank == 0:
            self.raises_soon("s rank 2 had not called", lambda: dist.barrier(group), 0.9)
            self.after(0, "timeout")
        else:
            self.raises_soon("given up on rank 0", lambda: dist.barrier(group), 0.5)
        dist.destroy_process_group(group)

    def test_abort_fails_what_is_pending(self):
        self.only_ronde()  # over gloo it goes on to wait
        for count in (3, 1):
            with self.subTest(count=count):
                self.abort_pending(count)

    def abort_pending(self, count):
        """A thread waits for the first of so many; the others nobody has waited for."""
        group = self.lonely()
        dist.barrier(group)
        if self.rank == 0:
            works, heard = [dist.all_reduce(torch.ones(1), group=group, async_op=True) for _ in range(count)], []

            def wait():
                try:
                    works[0].wait()
                except ronde.Error as error:
                    heard.append(str(error))

            waiting = threading.Thread(target=wait, daemon=True)
            waiting.start()
            time.sleep(0.1)
            began = time.monotonic()
            group.abort()
            waiting.join(5)
            for number, work in enumerate(works, 1):
                self.raises_soon(rf"/{number}' was in flight when abort\(\) was called on rank 0", work.wait)
            self.assertLess(time.monotonic() - began, 5)
            self.assertRegex(heard[0], "/1' was in flight when abort")
            self.assertEqual(self.own_backend(group).get_error(), c10d.ErrorType.COMM_ERROR)
        self.after(0, f"aborted {count}")
        if self.rank:
            self.raises_soon("rank 0", lambda: dist.all_reduce(torch.ones(1), group=group))
        dist.destroy_process_group(group)

    def test_a_rank_that_leaves_is_an_error_of_a_remote(self):
        self.only_ronde()
        group = self.lonely()
        self.assertEqual(self.own_backend(group).get_error(), c10d.ErrorType.SUCCESS)
        dist.barrier(group)
        if self.rank == 0:
            group.shutdown()
        else:
            self.raises_soon("rank 0", lambda: dist.all_reduce(torch.ones(1), group=group))
            self.assertNotEqual(self.own_backend(group).get_error(), c10d.ErrorType.SUCCESS)
        dist.destroy_process_group(group)

    def test_a_barrier_that_rank_0_watches(self):
        group = self.lonely()
        dist.monitored_barrier(group, seconds(60))
        dist.monitored_barrier(group, 60.0)
        if self.rank == 0:
            others = ", ".join(str(rank) for rank in self.all[1:])
            self.raises_soon(rf"Ranks? {others} failed to pass monitoredBarrier in 300 ?ms",
                             lambda: dist.monitored_barrier(group, seconds(0.3), wait_all_ranks=True), 0.3)
        self.after(0, "late")
        if self.is_ronde:
            dist.barrier(group)  # the group goes on
        dist.destroy_process_group(group)

    def test_nothing_works_after_shutdown(self):
        group = dist.new_group()
        dist.all_reduce(torch.ones(1), group=group)
        dist.barrier(group)
        group.shutdown()
        self.only_ronde()  # over gloo it does
        self.raises_soon("closed", lambda: dist.all_reduce(torch.ones(1), group=group))
        group.shutdown()


if __name__ == "__main__":
    if not has_python_backends():
        print(f"PyTorch {torch.__version__} has no back ends in Python: nothing to test")
        sys.exit(0)
    sys.exit(main("torch_backend.py"))
