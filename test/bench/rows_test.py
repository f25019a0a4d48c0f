#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What rows.py makes of measurements: verdicts, the exit code, and programs that do not run."""

import unittest

import programs
import rows
from programs import ProgramError, Series
from rows import Row


def row(ratio, wants=">=", limit=1.5, **more):
    return Row("a row", ratio=Series(ratio), wants=wants, limit=limit, **more)


class Verdicts(unittest.TestCase):
    def test_the_median_decides_not_the_worst(self):
        self.assertEqual(row([1.0, 1.6, 1.7]).verdict, rows.OK)
        self.assertEqual(row([1.4, 1.4, 9.0]).verdict, rows.MISSED)

    def test_at_most(self):
        self.assertEqual(row([0.9], "<=", 1.0).verdict, rows.OK)
        self.assertEqual(row([1.1], "<=", 1.0).verdict, rows.MISSED)

    def test_the_limit_itself_is_reached(self):
        self.assertEqual(row([1.5]).verdict, rows.OK)
        self.assertEqual(row([1.0], "<=", 1.0).verdict, rows.OK)

    def test_a_floor_that_misses_too_is_the_machine(self):
        self.assertEqual(row([1.2], floor=Series([1.4])).verdict, rows.MACHINE)
        self.assertEqual(row([1.2], floor=Series([1.6])).verdict, rows.MISSED)
        self.assertEqual(row([1.6], floor=Series([1.4])).verdict, rows.OK)

    def test_only_missed_and_failed_rows_fail(self):
        good = [row([2.0]), row([1.2], floor=Series([1.4])), row([1.0], constant=True), Row("report")]
        self.assertEqual(rows.exit_code(good), 0)
        self.assertEqual(rows.exit_code([*good, row([1.0])]), 1)
        self.assertEqual(rows.exit_code([*good, Row("x", error="no program")]), 1)

    def test_the_table_shows_every_row_and_says_what_was_missed(self):
        measured = [row([2.0]), Row("another", ratio=Series([1.0]), limit=2.0)]
        lines = rows.table(measured)
        self.assertEqual(len(lines), 4)
        self.assertIn("MISSED", lines[3])
        self.assertIn("missed: another", list(rows.legend(measured)))


class Reading(unittest.TestCase):
    SAMPLES = [
        {"contender": "floor-32K", "bytes": 8, "repetition": 1, "median_us": 4.0, "wrong": 0},
        {"contender": "floor-32K", "bytes": 8, "repetition": 0, "median_us": 2.0, "wrong": 0},
        {"contender": "floor-64K", "bytes": 8, "repetition": 0, "median_us": 1.0, "wrong": 0},
        {"contender": "floor-64K", "bytes": 8, "repetition": 1, "median_us": 2.0, "wrong": 0},
        {"contender": "mpi", "bytes": 8, "repetition": 0, "median_us": 4.0, "wrong": 0},
        {"contender": "mpi", "bytes": 8, "repetition": 1, "median_us": 6.0, "wrong": 0},
    ]

    def test_the_best_floor_and_ratios_by_repetition(self):
        times = programs.by_contender(self.SAMPLES, "median_us")
        self.assertEqual(times[8, "floor-32K"].values, [2.0, 4.0])
        times = programs.with_best_floor(times)
        self.assertEqual(times[8, "floor"].values, [1.0, 2.0])
        self.assertEqual(times[8, "mpi"].over(times[8, "floor"]).values, [4.0, 3.0])

    def test_wrong_results_are_refused(self):
        with self.assertRaises(ProgramError):
            programs.by_contender([dict(self.SAMPLES[0], wrong=1)], "median_us")

    def test_the_last_line_of_key_values(self):
        text = "epoch 1\nranks=2 images_per_second=1200 param_hash=0xab share=0.5\n"
        values = programs.Programs.key_values(text)
        self.assertEqual(values, {"ranks": 2.0, "images_per_second": 1200.0, "share": 0.5})

    def test_a_program_that_is_missing_fails_its_rows_alone(self):
        bench = rows.Bench(programs.Programs("/nonexistent", log=lambda text: None))
        measured = rows.measure(bench, ["1M", "idle"], lambda text: None)
        self.assertEqual([row.verdict for row in measured], [rows.FAILED, rows.FAILED])


if __name__ == "__main__":
    unittest.main()
