#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Horovod's names on NumPy arrays: run on each rank of a job, under mpirun or alone."""
import gc
import json
import os
import pathlib
import tempfile
import threading
import types
import unittest
import unittest.mock
import weakref

import numpy
import ronde


class Names(unittest.TestCase):
    def setUp(self):
        ronde.init()
        self.rank, self.size = ronde.rank(), ronde.size()

    def test_where_a_rank_is(self):
        self.assertTrue(ronde.is_initialized())
        ronde.init()  # a second time it does nothing
        self.assertEqual((ronde.local_rank(), ronde.local_size()), (self.rank, self.size))
        self.assertEqual((ronde.cross_rank(), ronde.cross_size(), ronde.is_homogeneous()), (0, 1, True))

    def test_allreduce(self):
        total = sum(range(1, self.size + 1))
        for dtype in ("float16", "float32", "float64", "int32", "int64"):
            array = numpy.arange(6, dtype=dtype).reshape(2, 3) * (self.rank + 1)
            expected = numpy.arange(6).reshape(2, 3) * total
            result = ronde.allreduce(array, average=False)
            self.assertEqual((result.dtype, result.tolist()), (array.dtype, expected.tolist()))
            numpy.testing.assert_allclose(ronde.allreduce(array), (expected / self.size).astype(dtype), rtol=1e-3)
            self.assertIs(ronde.allreduce_(array, op=ronde.Sum), array)
            self.assertEqual(array.tolist(), expected.tolist())
        self.assertEqual(ronde.allreduce([self.rank], op=ronde.Max).tolist(), [self.size - 1])
        self.assertEqual(ronde.allreduce(numpy.array(2), op=ronde.Product).tolist(), 2 ** self.size)
        with self.assertRaisesRegex(ValueError, "average and op"):
            ronde.allreduce(numpy.ones(1), average=True, op=ronde.Sum)

    def test_averages_by_weights(self):
        weights = [1.5 * rank + (rank == 0) for rank in range(self.size)]
        expected = sum(weight * rank for rank, weight in enumerate(weights)) / sum(weights)
        mine, array = weights[self.rank], numpy.full(5 * self.size, float(self.rank))
        for result in (ronde.allreduce(array, weight=mine), ronde.allreduce_async(array, weight=mine).wait(),
                       ronde.grouped_allreduce([array, array[:1]], weight=mine)[1],
                       ronde.reducescatter(array, weight=mine)):
            numpy.testing.assert_allclose(result, expected, rtol=1e-6)
        self.assertIs(ronde.allreduce_(array, weight=mine), array)
        numpy.testing.assert_allclose(array, expected, rtol=1e-6)
        with self.assertRaisesRegex(ValueError, "its weight is -1: give it a finite number"):
            ronde.allreduce(array, name="negative", weight=-1)
        with self.assertRaisesRegex(ValueError, "sum has no weights"):
            ronde.allreduce(array, name="sum", op=ronde.Sum, weight=1)
        with self.assertRaisesRegex(ValueError, "add up to 0"):
            ronde.allreduce(array, name="none", weight=0)

    def test_factors_of_integers_are_applied_in_f64_and_truncated(self):
        array = numpy.array([7, -7])
        self.assertEqual(ronde.allreduce(array, op=ronde.Sum, prescale_factor=0.5).tolist(),
                         [3 * self.size, -3 * self.size])
        self.assertEqual(ronde.allreduce(array, op=ronde.Sum, postscale_factor=0.5 / self.size).tolist(), [3, -3])
        self.assertEqual(ronde.reducescatter(numpy.full(self.size, 7), op=ronde.Sum, prescale_factor=0.5).tolist(),
                         [3 * self.size])
        self.assertEqual(array.tolist(), [7, -7])

    def test_in_place_without_contiguous_memory(self):
        array = numpy.zeros((4, 3)).T
        array += self.rank
        self.assertIs(ronde.allreduce_(array, op=ronde.Max), array)
        self.assertTrue((array == self.size - 1).all())
        ronde.broadcast_(array[::2], 0)
        frozen = numpy.ones(2)
        frozen.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "read-only"):
            ronde.allreduce_(frozen)

    def test_compression(self):
        array = numpy.full(5, 1 + 2 ** -12, numpy.float32)
        for compression in (ronde.Compression.fp16, ronde.Compression.bf16):
            result = ronde.allreduce(array, compression=compression)
            self.assertEqual((result.dtype, result[0]), (numpy.float32, 1.0))
        result = ronde.allreduce(array.astype("float64"), compression=ronde.Compression.fp16)
        self.assertEqual((result.dtype, result[0]), (numpy.float64, 1.0))

        class Halves(ronde.Compressor):
            """Of a program's own."""

            @staticmethod
            def compress(tensor):
                return tensor / 2, "context"

            @staticmethod
            def decompress(tensor, ctx):
                return tensor * (2 if ctx == "context" else 0)

        self.assertEqual(ronde.allreduce(numpy.ones(2), compression=Halves).tolist(), [1, 1])
        self.assertEqual(ronde.allreduce_async_(numpy.ones(2), compression=Halves).wait().tolist(), [1, 1])

    def test_groups_may_mix_types(self):
        arrays = [numpy.ones(3, numpy.float32), numpy.ones(2, numpy.int32), numpy.ones((2, 2), numpy.float32)]
        for results in (ronde.grouped_allreduce(arrays, op=ronde.Sum, name="group"),
                        ronde.synchronize(ronde.grouped_allreduce_async(arrays, op=ronde.Sum)),
                        ronde.grouped_allreduce_(arrays, op=ronde.Sum)):
            self.assertEqual([(one.dtype, one.shape, one.flat[0]) for one in results],
                             [(one.dtype, one.shape, self.size) for one in arrays])
        gathered = ronde.grouped_allgather([numpy.full((self.rank, 2), 1.0), numpy.array([self.rank])])
        self.assertEqual([one.shape for one in gathered], [(sum(range(self.size)), 2), (self.size,)])
        scattered = ronde.grouped_reducescatter([numpy.ones((self.size, 2)), numpy.ones(self.size)], op=ronde.Sum)
        self.assertEqual([one.tolist() for one in scattered], [[[self.size] * 2], [self.size]])

    def test_a_group_that_is_refused_in_part_goes_on_without_its_handle(self):
        array = numpy.ones(3)
        kept = weakref.ref(array)
        with self.assertRaises(ValueError):
            ronde.grouped_allgather([array, numpy.ones(1, numpy.clongdouble)], name="half")
        del array
        ronde.barrier()
        ronde.barrier()  # a submission lets go of what is done
        gc.collect()
        self.assertIsNone(kept())

    def test_moves(self):
        rows = numpy.full((self.rank + 1, 2), self.rank, numpy.int16)
        self.assertEqual(ronde.allgather(rows)[:, 0].tolist(), [r for r in range(self.size) for _ in range(r + 1)])
        for root in range(self.size):
            self.assertEqual(ronde.broadcast(numpy.array([self.rank]), root).tolist(), [root])
            array = numpy.array([[self.rank]], bool)
            self.assertIs(ronde.synchronize(ronde.broadcast_async_(array, root)), array)
            self.assertEqual(array.tolist(), [[root > 0]])
        self.assertEqual(ronde.alltoall(numpy.arange(self.size)).tolist(), [self.rank] * self.size)
        sent = numpy.arange(self.size * 2 + 1)  # the last row goes nowhere, as with Horovod
        received, splits = ronde.alltoall(sent, splits=[2] * self.size)
        self.assertEqual(received.tolist(), [2 * self.rank, 2 * self.rank + 1] * self.size)
        self.assertEqual((splits.tolist(), splits.dtype), ([2] * self.size, numpy.int32))
        for bad in ([0.5] * self.size, [2 * self.size + 2] * self.size, [1] * (self.size + 1), [-1] * self.size):
            with self.assertRaises(ValueError):
                ronde.alltoall(sent, splits=bad)
        handle = ronde.reducescatter_async(numpy.ones((self.size * 2 + 1, 3)), op=ronde.Sum, name="scattered")
        self.assertEqual(ronde.synchronize(handle).shape, (2 + (self.rank == 0), 3))
        self.assertTrue(ronde.poll(handle))
        with self.assertRaisesRegex(ValueError, "scalar"):
            ronde.reducescatter(numpy.array(1.0))
        ronde.barrier()

    def test_objects(self):
        for root in range(self.size):
            value = {"rank": self.rank, "data": numpy.arange(3)} if self.rank == root else None
            self.assertEqual(ronde.broadcast_object(value, root_rank=root)["rank"], root)
        self.assertEqual(ronde.allgather_object("x" * self.rank, name="words"), ["x" * r for r in range(self.size)])

    def test_what_pickle_does_not_take_is_an_error_on_every_rank(self):
        last = self.size - 1
        value = threading.Lock() if self.rank == last else None
        for call in (lambda: ronde.broadcast_object(value, root_rank=last), lambda: ronde.allgather_object(value)):
            with self.assertRaisesRegex(TypeError if self.rank == last else ronde.Error,
                                        "pickle" if self.rank == last else f"rank {last} could not be serialized"):
                call()
        self.assertEqual(ronde.allgather_object(self.rank), list(range(self.size)))

    def test_join(self):
        for epoch in range(2):
            for step in range(self.rank + 1):
                present = range(step, self.size)  # rank r takes r + 1 steps
                mean = ronde.allreduce(numpy.full(3, float(self.rank)), name="mean")
                numpy.testing.assert_allclose(mean, sum(present) / len(present), rtol=1e-6)
                rows = ronde.allgather(numpy.full((self.rank + 1, 2), self.rank))  # without a name
                self.assertEqual(rows[:, 0].tolist(), [rank for rank in present for _ in range(rank + 1)])
            self.assertEqual(ronde.join(), self.size - 1)
            # Operations without a name go on from one number.
            self.assertEqual(ronde.allreduce(numpy.ones(1), op=ronde.Sum).tolist(), [self.size])
            self.assertEqual(ronde.allgather(numpy.ones((1, 2))).shape, (self.size, 2))

    def test_a_timeline_is_started_and_stopped_while_the_job_runs(self):
        with tempfile.TemporaryDirectory() as folder:  # of rank 0, for all of them
            folder = ronde.broadcast_object(folder, root_rank=0)
            for part, cycles in enumerate((True, False, True)):
                path = pathlib.Path(folder) / f"trace{part}.json"
                ronde.start_timeline(str(path), mark_cycles=cycles)
                ronde.start_timeline(str(path))  # as it is
                with self.assertRaisesRegex(ValueError, "stop it first"):
                    ronde.start_timeline(f"{path}.other")
                ronde.allreduce(numpy.ones(3, numpy.float32), name="test_allreduce")
                ronde.stop_timeline()
                ronde.stop_timeline()  # a second time it does nothing
                ronde.barrier()
                text = path.read_text(encoding="utf-8")
                # What Horovod's own test of its timeline looks for.
                for word in ("allreduce.test_allreduce", "start_time_since_epoch_in_micros", "NEGOTIATE_ALLREDUCE",
                             "ALLREDUCE"):
                    self.assertIn(word, text)
                self.assertEqual("CYCLE_START" in text, cycles)
                events = json.loads(text)
                self.assertEqual({event["pid"] for event in events if event.get("cat") == "ALLREDUCE"},
                                 set(range(self.size)))
            ronde.barrier()  # rank 0 removes the folder
        with self.assertRaisesRegex(ronde.Error, "'/nowhere/trace.json' cannot be opened: No such file"):
            ronde.start_timeline("/nowhere/trace.json")

    def test_marks_are_in_the_timeline(self):
        with tempfile.TemporaryDirectory() as folder, ronde.Engine(name="marks") as engine:
            path = pathlib.Path(folder) / "trace.json"
            engine.mark("while it is off")
            engine.start_timeline(path)
            with engine.marked("forward"):
                engine.mark("here")
            engine.stop_timeline()
            events = json.loads(path.read_text(encoding="utf-8"))
            self.assertEqual([(event["ph"], event["name"]) for event in events if event["ph"] in "BEi"],
                             [("B", "forward"), ("i", "here"), ("E", "forward")])

    def test_what_is_missing_says_so(self):
        one = numpy.ones(1)
        communicator = types.SimpleNamespace(Get_rank=None)
        for name, call in (("mpi_comm", lambda: ronde.ProcessSet(communicator)),
                           ("Adasum", lambda: ronde.allreduce(one, op=ronde.Adasum)),
                           ("elastic", lambda: ronde.elastic),
                           ("sub-communicators", lambda: ronde.init(comm=[0]))):
            with self.assertRaisesRegex(NotImplementedError, name):
                call()
        with self.assertRaises(AttributeError):
            _ = ronde.unheard_of
        self.assertEqual(ronde.allreduce(one, process_set=ronde.global_process_set).tolist(), [1])
        self.assertEqual(ronde.global_process_set.ranks, list(range(self.size)))

    def test_process_sets_reduce_among_themselves(self):
        even, odd = list(range(0, self.size, 2)), list(range(1, self.size, 2))
        if not odd:  # that is everybody
            self.assertRaises(ronde.InvalidArgument, ronde.add_process_set, even)
            return
        sets = [ronde.add_process_set(even), ronde.add_process_set(ronde.ProcessSet(odd))]
        mine = sets[self.rank % 2]
        self.assertEqual((mine.included(), mine.size(), mine.rank()),
                         (True, len(mine.ranks), mine.ranks.index(self.rank)))
        for _ in range(3):  # unnamed ones are numbered in each set by itself
            value = numpy.full(5, self.rank + 1.0)
            self.assertEqual(ronde.allreduce(value, op=ronde.Sum, process_set=mine).tolist(),
                             [sum(mine.ranks) + len(mine.ranks)] * 5)
            if self.rank % 2 == 0:
                ronde.barrier(process_set=mine)
        self.assertEqual(ronde.allgather(numpy.array([self.rank]), process_set=mine).tolist(), mine.ranks)
        last = mine.ranks[-1]
        self.assertEqual(ronde.broadcast(numpy.array([self.rank]), last, process_set=mine).tolist(), [last])
        self.assertEqual(ronde.broadcast_object(self.rank, last, process_set=mine), last)
        self.assertEqual(ronde.allgather_object(self.rank, process_set=mine), mine.ranks)
        rows = numpy.full(len(mine.ranks), self.rank)
        self.assertEqual(ronde.alltoall(rows, process_set=mine).tolist(), mine.ranks)
        self.assertEqual(ronde.reducescatter(rows, op=ronde.Sum, process_set=mine).tolist(), [sum(mine.ranks)])
        with self.assertRaisesRegex(ronde.InvalidArgument, "is there already"):
            ronde.add_process_set(even)
        with self.assertRaisesRegex(ronde.InvalidArgument, f"rank {self.rank} is not in ProcessSet"):
            ronde.allreduce(value, process_set=sets[1 - self.rank % 2])
        with self.assertRaisesRegex(ronde.InvalidArgument, "is not in ProcessSet"):
            ronde.broadcast(value, 1 - self.rank % 2, process_set=mine)
        self.assertFalse(ronde.remove_process_set(ronde.global_process_set))
        for one in sets:
            self.assertTrue(ronde.remove_process_set(one))
            self.assertFalse(ronde.remove_process_set(one))
        with self.assertRaisesRegex(ronde.InvalidArgument, "has not been added"):
            ronde.allreduce(value, process_set=mine)
        self.assertIsNone(mine.size())

    def test_what_is_built_and_used_of_mpi(self):
        by_mpi = "OMPI_COMM_WORLD_SIZE" in os.environ
        self.assertEqual((ronde.mpi_built(), ronde.mpi_enabled()), (True, by_mpi))
        self.assertTrue(ronde.mpi_threads_supported())  # on one host Ronde calls no MPI meanwhile
        with unittest.mock.patch.dict(os.environ, RONDE_ALGORITHM=""):  # as good as not set
            self.assertTrue(ronde.mpi_threads_supported())
        with unittest.mock.patch.dict(os.environ, RONDE_ALGORITHM="ring"):  # then it does, and has started it below
            self.assertEqual(ronde.mpi_threads_supported(), not by_mpi)
        self.assertEqual([ronde.gloo_built(), ronde.gloo_enabled(), ronde.nccl_built(), ronde.ddl_built(),
                          ronde.ccl_built(), ronde.cuda_built(), ronde.rocm_built()], [False] * 7)

    def test_zz_a_job_ends_and_begins_again(self):
        ronde.shutdown()
        self.assertFalse(ronde.is_initialized())
        with self.assertRaisesRegex(ValueError, r"init\(\)"):
            ronde.mpi_threads_supported()
        with self.assertRaisesRegex(ValueError, r"init\(\)"):
            ronde.rank()
        with self.assertRaisesRegex(ValueError, r"init\(\)"):
            ronde.allreduce(numpy.ones(1))
        ronde.init()
        self.assertEqual((ronde.rank(), ronde.size()), (self.rank, self.size))
        self.assertEqual(ronde.allreduce(numpy.ones(1), op=ronde.Sum).tolist(), [self.size])


if __name__ == "__main__":
    unittest.main()
