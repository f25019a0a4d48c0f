#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ronde.Engine with ranks in one process: every operation and type, errors, and who keeps memory alive."""
import gc
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import weakref

import numpy

import ronde
from ronde import _messages, _numpy
from local_ranks import run_ranks

TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64",
         "bool")


class Operations(unittest.TestCase):
    def test_every_type_is_reduced_in_place_without_a_copy(self):
        def body(engine):
            for dtype in TYPES:
                array = numpy.array([[1, 0, engine.rank]], dtype)
                work = engine.allreduce(dtype, array, ronde.Max)
                self.assertIs(work.wait(), array)
                self.assertEqual(array.tolist(), numpy.array([[1, 0, 2]], dtype).tolist(), dtype)

        run_ranks(3, body)

    def test_out_of_place_with_factors_and_compression(self):
        def body(engine):
            array, out = numpy.full((3, 2), 1 + engine.rank, numpy.float32), numpy.zeros((3, 2), numpy.float32)
            engine.allreduce("a", array, ronde.Sum, out=out, prescale=2, postscale=0.5,
                             compression=ronde.Compression.bf16).wait()
            self.assertTrue((out == 3).all() and (array == 1 + engine.rank).all())

        run_ranks(2, body)

    def test_results_of_the_runtime_live_as_long_as_their_arrays(self):
        def body(engine):
            rows = numpy.arange(engine.rank * 3, dtype=numpy.int32).reshape(engine.rank, 3)  # rank 0 has none
            everything = engine.allgather("rows", rows).wait()
            part = everything[1:]
            del everything
            gc.collect()
            for i in range(20):  # reuses memory that were free
                engine.allgather(f"other{i}", numpy.full((2, 3), 9, numpy.int32)).wait()
            self.assertEqual(part.tolist(), [[0, 1, 2], [3, 4, 5]])
            part[0, 0] = 7  # it is ours
            self.assertEqual(engine.allgather("none", numpy.empty((0, 4))).wait().shape, (0, 4))
            return part

        parts = run_ranks(3, body)  # the engines are closed now
        self.assertEqual(parts[0].tolist(), [[7, 1, 2], [3, 4, 5]])

    def test_rows_are_scattered_and_exchanged(self):
        def body(engine):
            share = engine.reduce_scatter("share", numpy.arange(10.0).reshape(5, 2), ronde.Sum).wait()
            self.assertEqual(share.tolist(), [[0, 2], [4, 6], [8, 10]] if engine.rank == 0 else [[12, 14], [16, 18]])
            share = engine.reduce_scatter("splits", numpy.ones(3), ronde.Sum, splits=[0, 3]).wait()
            self.assertEqual(share.tolist(), [] if engine.rank == 0 else [2, 2, 2])
            rows, splits = engine.all_to_all("rows", numpy.arange(3) + 10 * engine.rank, [1, 2]).wait()
            self.assertEqual(rows.tolist(), [0, 10] if engine.rank == 0 else [1, 2, 11, 12])
            self.assertEqual(splits, [1, 1] if engine.rank == 0 else [2, 2])

        run_ranks(2, body)

    def test_groups_broadcasts_and_buffers(self):
        def body(engine):
            arrays = {"w": numpy.full(3, engine.rank + 1.0), "b": numpy.full(1, engine.rank + 1.0)}
            engine.grouped_allreduce(arrays).wait()
            self.assertEqual([array[0] for array in arrays.values()], [1.5, 1.5])
            scalar = numpy.array(engine.rank, numpy.int64)
            engine.grouped_broadcast({"scalar": scalar}, root=1).wait()
            self.assertEqual(int(scalar), 1)
            buffer = engine.buffer((2, 3), numpy.float64)
            buffer += engine.rank
            engine.allreduce("buffer", buffer, ronde.Sum).wait()
            self.assertEqual(buffer.tolist(), [[1, 1, 1], [1, 1, 1]])
            for size, in_place in ((100_000, True), (20 << 20, False)):  # more than a local job's board has
                array = engine.empty(size)
                array[:] = engine.rank
                before = engine.statistics()["in_place_bytes"]
                engine.allreduce(f"empty {size}", array, ronde.Sum).wait()
                self.assertTrue((array == 1).all())
                self.assertEqual(engine.statistics()["in_place_bytes"] - before, array.nbytes if in_place else 0)
            self.assertEqual(engine.empty((0, 3)).shape, (0, 3))
            engine.barrier().wait()
            self.assertGreaterEqual(engine.statistics()["tensors"], 4)
            self.assertEqual(engine.statistics()["late"], [])  # alone nobody is late
            self.assertIn("rank", engine.describe())

        run_ranks(2, body)

    def test_complex_numbers_are_moved_and_summed(self):
        def body(engine):
            for dtype in (numpy.complex64, numpy.complex128):
                mine = numpy.array([1j, 2, 3, 4 + 1j], dtype) * (engine.rank + 1)
                for work, expected in (
                        (engine.allreduce("sum", mine, ronde.Sum, out=numpy.empty_like(mine)), [3j, 6, 9, 12 + 3j]),
                        (engine.allgather("rows", mine), [1j, 2, 3, 4 + 1j, 2j, 4, 6, 8 + 2j]),
                        (engine.reduce_scatter("share", mine), [[1.5j, 3], [4.5, 6 + 1.5j]][engine.rank])):
                    self.assertEqual((work.wait().dtype, work.wait().tolist()), (mine.dtype, expected))
                rows, splits = engine.all_to_all("to all", mine, [1, 3]).wait()
                self.assertEqual((rows.dtype, rows.tolist(), splits), (mine.dtype, *(
                    ([1j, 2j], [1, 1]) if engine.rank == 0 else ([2, 3, 4 + 1j, 4, 6, 8 + 2j], [3, 3]))))
                self.assertEqual(engine.broadcast("root", mine, 1).wait().tolist(), [2j, 4, 6, 8 + 2j])
                for refused in (lambda: engine.allreduce("max", mine, ronde.Max),
                                lambda: engine.grouped_allreduce({"a": mine.real.copy(), "b": mine}, ronde.Max),
                                lambda: engine.reduce_scatter("min", mine, ronde.Min)):
                    with self.assertRaisesRegex(ValueError, "M.. of complex"):
                        refused()
                with self.assertRaisesRegex(ValueError, "alike"):
                    engine.allreduce("a", mine, out=numpy.ones((4, 2), mine.real.dtype))

        run_ranks(2, body)

    def test_inputs_need_not_be_contiguous_and_outputs_must(self):
        def body(engine):
            columns = numpy.arange(6.0).reshape(2, 3).T
            self.assertEqual(engine.allgather("columns", columns).wait().tolist(), columns.tolist())
            frozen = numpy.ones(3)
            frozen.flags.writeable = False
            for array, word in ((columns, "contiguous"), (frozen, "read-only"), ([1.0], "a list"),
                                (numpy.ones(1, ">f8"), "byte order"), (numpy.ones(1, "clongdouble"), "complex256")):
                with self.assertRaisesRegex(ValueError, word):
                    engine.allreduce("refused", array)
            with self.assertRaisesRegex(ronde.InvalidArgument, "alike"):
                engine.allreduce("a", numpy.ones(3), out=numpy.ones(4))
            with self.assertRaisesRegex(NotImplementedError, "Adasum"):
                engine.allreduce("a", numpy.ones(3), ronde.Adasum)

        run_ranks(1, body)


class Errors(unittest.TestCase):
    def test_an_error_names_tensor_place_and_status_and_the_engine_lives_on(self):
        def body(engine):
            with self.assertRaises(ronde.Error) as caught:
                engine.allreduce("weight", numpy.ones(3 + engine.rank)).wait()
            error = caught.exception
            self.assertEqual((error.status, error.tensor), (ronde.Status.MISMATCH, "weight"))
            self.assertNotIsInstance(error, ValueError)
            self.assertIn("engine_test.py", error.place)
            self.assertIn("engine_test.py", str(error))
            self.assertEqual(engine.allreduce("weight", numpy.ones(3)).wait().tolist(), [1, 1, 1])

        run_ranks(2, body)

    def test_rank_0_says_who_is_late(self):
        def body(engine):
            for _ in range(4):  # the first of them is not counted
                if engine.rank == 1:
                    time.sleep(0.2)
                engine.allreduce("weight", numpy.ones(3)).wait()
            return engine.statistics()["late"]

        late, nothing, _ = run_ranks(3, body)
        self.assertEqual((late[0]["tensor"], late[0]["rank"], late[0]["steps"]), ("weight", 1, 3))
        self.assertEqual(nothing, [])

    def test_a_message_has_a_deadline_of_its_own(self):
        def body(engine):
            data = numpy.ones(2)
            memory = _numpy.memory_of(data.ctypes.data, data.shape, _numpy.NUMBERS["float64"], data)
            _messages.receive(engine, 1 - engine.rank, 7, memory, "activations", deadline=0.2).wait(None)

        with self.assertRaisesRegex(ronde.Error, "tag 7 from rank .* This is the deadline of the message") as caught:
            run_ranks(2, body)
        self.assertEqual(caught.exception.status, ronde.Status.DEADLINE)

    def test_a_nan_is_named_before_it_spreads(self):
        def body(engine):
            array = numpy.ones((2, 3), numpy.float16)
            if engine.rank == 1:
                array[1, 0] = numpy.nan
            with self.assertRaises(ronde.Error) as caught:
                engine.allreduce("weight", array).wait()
            self.assertEqual(caught.exception.rank, 1)
            return str(caught.exception)

        with unittest.mock.patch.dict(os.environ, RONDE_CHECK="finite"):
            texts = run_ranks(2, body)
        self.assertIn("'weight': rank 1 submitted nan at element 3 of 6 at engine_test.py:", texts[0])
        self.assertEqual(texts[0], texts[1])

    def test_a_name_in_flight_and_a_closed_engine_are_refused(self):
        def body(engine):
            array, other = numpy.ones(1), numpy.ones(1)
            if engine.rank == 0:
                work = engine.allreduce("twice", array)
                with self.assertRaises(ValueError) as caught:
                    engine.allreduce("twice", other)
                self.assertEqual(caught.exception.status, ronde.Status.DUPLICATE_NAME)
                engine.barrier("go").wait()
            else:
                engine.barrier("go").wait()
                work = engine.allreduce("twice", array)
            work.wait()
            return engine

        engines = run_ranks(2, body)
        self.assertFalse(engines[0].is_open)
        with self.assertRaisesRegex(ronde.Error, "closed"):
            engines[0].allreduce("late", numpy.ones(1))
        engines[0].close()  # a second time it does nothing

    def test_a_name_twice_in_a_row_is_refused_whatever_the_timing(self):
        def body(engine):
            first = engine.allreduce("twice", numpy.ones(1))
            flight = first._flights[0]  # poll() of the Work would count as an answer
            while not flight.poll():
                pass
            with self.assertRaisesRegex(ValueError, "in flight already"):
                engine.allreduce("twice", numpy.ones(1))
            first.wait()
            engine.allreduce("twice", numpy.ones(1)).wait()

        run_ranks(1, body)

    def test_a_work_that_another_thread_has_given_up_is_not_done(self):
        def body(engine):
            work = engine.allreduce("given up", numpy.ones(1))
            work.wait()
            flight = work._flights[0]
            flight.settle(0)
            self.assertFalse(flight.drive(0))

        run_ranks(1, body)

    def test_waits_say_it_again(self):
        def body(engine):
            work = engine.allreduce("weight", numpy.ones(3 + engine.rank))
            texts = []
            for _ in range(2):
                try:
                    work.wait()
                except ronde.Error as error:
                    texts.append(str(error))
            self.assertEqual(texts[0], texts[1])
            self.assertTrue(work.poll())

        run_ranks(2, body)


class Lifetimes(unittest.TestCase):
    def test_a_dropped_work_keeps_its_arrays_until_it_is_done(self):
        seen = {}

        def body(engine):
            if engine.rank == 0:
                array = numpy.full(1000, 5.0)
                seen["array"] = weakref.ref(array)
                engine.allreduce("dropped", array, ronde.Sum)
                del array
                gc.collect()
                self.assertIsNotNone(seen["array"](), "the engine reads it")
                engine.barrier("go").wait()
            else:
                engine.barrier("go").wait()
                result = engine.allreduce("dropped", numpy.ones(1000), ronde.Sum).wait()
                self.assertTrue((result == 6).all())
            engine.barrier("over").wait()
            engine.broadcast("next", numpy.ones(1)).wait()  # a submission lets go of what is done
            if engine.rank == 0:
                gc.collect()
                self.assertIsNone(seen["array"]())

        run_ranks(2, body)

    def test_an_engine_that_is_dropped_stays_open(self):
        job, kept = ronde.LocalJob(2), []

        def leave():
            array = numpy.full(1000, 5.0)
            kept.append(weakref.ref(array))
            ronde.Engine(job, 0).allreduce("left", array, ronde.Sum)

        leaving = threading.Thread(target=leave)
        leaving.start()
        with ronde.Engine(job, 1) as engine:
            leaving.join()
            gc.collect()
            self.assertIsNotNone(kept[0](), "the engine reads it")
            self.assertTrue((engine.allreduce("left", numpy.ones(1000), ronde.Sum).wait() == 6).all())

    def test_a_signal_reaches_a_waiting_main_thread(self):
        job = ronde.LocalJob(2)
        engines = [None, None]

        def open_engine(rank):
            engines[rank] = ronde.Engine(job, rank)

        thread = threading.Thread(target=open_engine, args=(1,))
        thread.start()
        open_engine(0)
        thread.join()

        def interrupt(_signal, _frame):
            raise InterruptedError("as Ctrl-C does")

        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            with self.assertRaises(InterruptedError):
                engines[0].allreduce("lonely", numpy.ones(1)).wait()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        with self.assertRaises(TimeoutError):
            engines[0].allreduce("lonely too", numpy.ones(1)).wait(timeout=0.05)
        closer = threading.Thread(target=engines[1].abandon)
        closer.start()
        engines[0].abandon()  # what rank 1 never joins is given up after a short grace
        closer.join()

    def test_threads_may_wait_for_one_work_and_poll_does_not_block(self):
        def body(engine):
            if engine.rank == 1:
                engine.barrier("go").wait()
                return engine.allreduce("shared", numpy.ones(2), ronde.Sum).wait()
            work = engine.allreduce("shared", numpy.ones(2), ronde.Sum)
            results = []
            threads = [threading.Thread(target=lambda: results.append(work.wait())) for _ in range(3)]
            for thread in threads:
                thread.start()
            self.assertFalse(work.poll())
            engine.barrier("go").wait()
            for thread in threads:
                thread.join()
            self.assertEqual([result.tolist() for result in results], [[2, 2]] * 3)
            self.assertTrue(work.poll())
            return results[0]

        run_ranks(2, body)


class Built(unittest.TestCase):
    """What a process says of the plug-in for MPI, with a libronde.so that lies in a folder of the test."""

    def says(self, folder, **settings):
        program = "import ronde; print(ronde.mpi_built(), ronde.mpi_enabled())"
        environment = {key: value for key, value in os.environ.items() if key != "RONDE_TRANSPORT_PATH"}
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60,
                              env={**environment, "LIBRONDE": str(folder / "libronde.so"), **settings})
        return done.stdout.split()

    def test_mpi_is_built_where_its_plug_in_is_found(self):
        own = pathlib.Path(ronde._library.LIBRARY._name).resolve()
        with tempfile.TemporaryDirectory() as name:
            folder, empty = pathlib.Path(name).resolve(), pathlib.Path(name).resolve() / "empty"
            empty.mkdir()
            shutil.copy(own, folder / "libronde.so")
            self.assertEqual(self.says(folder), ["False", "False"])
            self.assertEqual(self.says(folder, RONDE_TRANSPORT_PATH=str(own.parent)), ["True", "False"])
            shutil.copy(own.parent / "libronde_mpi.so", folder)
            self.assertEqual(self.says(folder), ["True", "False"])
            self.assertEqual(self.says(folder, RONDE_TRANSPORT_PATH=str(empty)), ["False", "False"])


if __name__ == "__main__":
    unittest.main()
