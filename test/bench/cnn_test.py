#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what cnn.py makes of trainings: the bound of a step between hosts, and the rows."""

import unittest

import cnn
import report
from programs import Hosts, Series


def turn(step_ms=100.0, **more):
    figures = {"images_per_second": 640.0, "first_gradient_ms": 30.0, "update_ms": 2.0, "wait_share": 0.4,
               "share_before_wait": 0.0, **more}
    return cnn.Turn(step_ms=step_ms, **figures)


class Bounds(unittest.TestCase):
    def test_a_fast_line_leaves_the_computing_and_a_slow_one_counts_from_the_first_gradient(self):
        self.assertEqual(cnn.bound([turn(), turn()], line_ms=60.0).ms, 100.0)
        self.assertEqual(cnn.bound([turn(), turn()], line_ms=80.0).ms, 30.0 + 80.0 + 2.0)

    def test_all_terms_are_of_the_slower_job(self):
        slow = turn(120.0, first_gradient_ms=40.0, update_ms=3.0)
        for apart in ([turn(), slow], [slow, turn()]):
            self.assertEqual(cnn.bound(apart, 80.0), cnn.Bound(120.0, 40.0, 80.0, 3.0))

    def test_the_text_names_each_term(self):
        text = cnn.bound_text([cnn.Bound(41.0, 12.0, 71.0, 2.0)] * 3)
        self.assertEqual(text, "max(compute 41.00, first gradient 12.00 + line 71.00 + update 2.00) ms")

    def test_the_gradients_are_those_of_the_model(self):
        layers = ((9 * 1, 32), (9 * 32, 64), (9 * 64, 128), (128 * 7 * 7, 320), (320, 10))
        self.assertEqual(cnn.GRADIENT_BYTES, 4 * sum((inputs + 1) * outputs for inputs, outputs in layers))

    def test_a_turn_is_read_from_the_last_line(self):
        read = cnn.Turn.of({"images_per_second": 640.0, "seconds": 4.0, "steps": 40.0, "first_gradient_ms": 30.0,
                            "update_ms": 2.0, "wait_share": 0.4, "share_before_wait": 0.0, "ranks": 2.0})
        self.assertEqual(read, turn())


class FakePrograms:
    """Each program takes as long as a test says, by the hosts and whether gradients overlap with backward."""

    repetitions = 7
    quick = False

    def __init__(self, **step_ms):
        self.step_ms = {"alone": 100.0, "overlap": 115.0, "no overlap": 170.0, **step_ms}
        self.raw = {}
        self.started = []

    def log(self, text):
        pass

    def command(self, ranks, program, *arguments):
        return [ranks, program, *arguments]

    def perf_times(self, ranks, *arguments, iterations):
        del ranks, arguments, iterations
        return {(cnn.GRADIENT_BYTES, "line"): Series([80_000.0] * 7)}

    def run_together(self, commands):
        results = []
        for ranks, _, *flags in commands:
            self.started.append((ranks, flags))
            kind = "alone" if not isinstance(ranks, Hosts) else "no overlap" if "off" in flags else "overlap"
            ms = self.step_ms[kind]
            size = ranks if kind == "alone" else 2
            results.append({"images_per_second": 64e3 * size / ms, "seconds": 40 * ms / 1e3, "steps": 40.0,
                            "first_gradient_ms": 30.0, "update_ms": 2.0, "wait_share": 0.25, "share_before_wait": 0.5})
        return results


class Rows(unittest.TestCase):
    @staticmethod
    def verdicts(programs):
        return {row.name: row.verdict for row in cnn.rows_two_hosts(cnn.Cnn(programs))}

    def test_a_step_near_its_bound_and_shorter_than_one_without_overlap(self):
        # The bound is 30 + 80 + 2 ms.
        self.assertNotIn(report.MISSED, self.verdicts(FakePrograms()).values())

    def test_a_step_far_above_its_bound_is_missed(self):
        verdicts = self.verdicts(FakePrograms(overlap=124.0))
        self.assertEqual(verdicts["CNN, 2 hosts x 1, 64 a rank, step to bound"], report.MISSED)
        self.assertEqual(verdicts["CNN, 2 hosts x 1, 64 a rank, step to one without overlap"], report.OK)

    def test_an_overlap_that_gains_nothing_is_missed(self):
        verdicts = self.verdicts(FakePrograms(**{"no overlap": 114.0}))
        self.assertEqual(verdicts["CNN, 2 hosts x 1, 256 a rank, step to bound"], report.OK)
        self.assertEqual(verdicts["CNN, 2 hosts x 1, 256 a rank, step to one without overlap"], report.MISSED)

    def test_over_ucx_mpi_may_idle_as_it_likes(self):
        programs = FakePrograms()
        rows = list(cnn.rows_over_ucx(cnn.Cnn(programs)))
        self.assertEqual([row.verdict for row in rows], [report.OK, report.OK])
        self.assertEqual({ranks for ranks, _ in programs.started if isinstance(ranks, Hosts)},
                         {Hosts(2, 1, mpi_idle="yield", transport="ucx")})
        rows = list(cnn.rows_over_ucx(cnn.Cnn(FakePrograms(overlap=124.0))))
        self.assertEqual([row.verdict for row in rows], [report.MISSED, report.MISSED])

    def test_mpi_keeps_the_core_that_it_was_given(self):
        programs = FakePrograms()
        cnn.Cnn(programs).two_hosts(64)
        self.assertEqual({ranks.mpi_idle for ranks, _ in programs.started if isinstance(ranks, Hosts)}, {"spin"})

    def test_names_are_different(self):
        rows = list(cnn.rows_two_hosts(cnn.Cnn(FakePrograms())))
        self.assertEqual(len({row.name for row in rows}), len(rows))

    def test_a_rank_of_two_has_as_many_images_as_one_alone(self):
        programs = FakePrograms()
        list(cnn.rows_two_hosts(cnn.Cnn(programs)))
        list(cnn.rows_one_host(cnn.Cnn(programs)))
        for ranks, flags in programs.started:
            size = 2 if isinstance(ranks, Hosts) or "mirrored" in flags else ranks
            self.assertIn(int(flags[flags.index("--global-batch") + 1]) / size, cnn.BATCHES)

    def test_two_ranks_are_compared_with_what_two_jobs_do_together(self):
        programs = FakePrograms()
        apart = iter([(640.0, 360.0)] * cnn.REPETITIONS)

        def run_together(commands):
            results = FakePrograms.run_together(programs, commands)
            if len(commands) == 2:
                for result, speed in zip(results, next(apart)):
                    result["images_per_second"] = speed
            else:
                results[0]["images_per_second"] = 900.0
            return results

        programs.run_together = run_together
        row, mirrored = cnn.rows_one_host(cnn.Cnn(programs))
        self.assertEqual((mirrored.ratio.median, mirrored.verdict), (1.0, report.OK))
        self.assertAlmostEqual(row.ratio.median, 0.9)
        # The slower of the two jobs would hold up the other, so 0.72 is all that these cores allow.
        self.assertAlmostEqual(row.floor.median, 0.72)
        self.assertEqual(row.verdict, report.MACHINE)

    def test_each_kind_begins_a_repetition_in_turn(self):
        programs = FakePrograms()
        cnn.Cnn(programs).two_hosts(64)
        self.assertEqual(len(programs.started), 4 * cnn.REPETITIONS)
        firsts = [programs.started[4 * i] for i in range(3)]
        self.assertEqual([isinstance(ranks, Hosts) for ranks, _ in firsts], [False, True, True])
        self.assertNotIn("off", firsts[1][1])
        self.assertIn("off", firsts[2][1])


if __name__ == "__main__":
    unittest.main()
