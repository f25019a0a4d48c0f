#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operations that are agreed once and run again and again, from Python."""
import time
import unittest

import numpy

import ronde
from local_ranks import run_ranks


class Prepared(unittest.TestCase):
    def test_prepared_operations_are_run_again_and_again(self):
        def body(engine):
            loss, rows = numpy.zeros(2, numpy.float32), numpy.zeros((1 + engine.rank, 2), numpy.int64)
            total = engine.prepare_allreduce("loss", loss, ronde.Sum)
            mean = numpy.zeros_like(loss)
            apart = engine.prepare_allreduce("mean", loss, out=mean, postscale=2)
            gather, first = engine.prepare_allgather("rows", rows), engine.prepare_broadcast("first", mean, 1)
            scattered = numpy.zeros(2, numpy.float32)
            scatter = engine.prepare_reduce_scatter("scatter", numpy.arange(6, dtype=numpy.float32), scattered, ronde.Sum)
            meet, before = engine.prepare_barrier("meet"), engine.statistics()["batches"]
            for call in range(100):
                loss[:] = engine.rank + call
                apart.start()
                loss[:] = engine.rank + call
                self.assertIs(apart.wait(), mean)
                self.assertEqual(mean.tolist(), [2.0 * (1 + call)] * 2)
                self.assertIs(total.run(), loss)
                self.assertEqual(loss.tolist(), [3.0 + 3 * call] * 2)
                rows[:] = 10 * engine.rank + call
                self.assertEqual(gather.run()[:, 0].tolist(), [call] + [10 + call] * 2 + [20 + call] * 3)
                mean[:] = engine.rank
                self.assertEqual(first.run().tolist(), [1.0, 1.0])
                self.assertEqual(scatter.run().tolist(), [3.0 * (2 * engine.rank), 3.0 * (2 * engine.rank + 1)])
                self.assertIsNone(meet.run())
            self.assertEqual(engine.statistics()["batches"], before)
            with self.assertRaisesRegex(ronde.Error, "wait.* without a call"):
                total.wait()
            with self.assertRaisesRegex(ronde.InvalidArgument, "contiguous"):
                engine.prepare_allgather("x", numpy.zeros((4, 4))[:, 1])
            return total

        for total in run_ranks(3, body):
            with self.assertRaisesRegex(ronde.Error, "closed"):
                total.run()

    def test_a_prepared_call_that_is_late_ends_for_all_ranks(self):
        def body(engine):
            loss = numpy.zeros(2, numpy.float32)
            total = engine.prepare_allreduce("timed", loss, ronde.Sum, timeout=0.1 if engine.rank == 0 else None)
            total.run()
            if engine.rank == 1:
                time.sleep(0.5)
            with self.assertRaisesRegex(ronde.Error, "deadline of (the|its) request") as late:
                total.run()
            self.assertEqual(late.exception.rank, 1 - engine.rank)
            engine.allreduce("goes on", loss, ronde.Sum).wait()

        run_ranks(2, body)


if __name__ == "__main__":
    unittest.main()
