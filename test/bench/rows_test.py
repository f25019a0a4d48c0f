#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what rows.py makes of measurements: verdicts, the exit code, and programs that do not run."""

import contextlib
import io
import json
import pathlib
import signal
import tempfile
import unittest
import unittest.mock

import machine
import programs
import report
import rows
from fake_programs import (BusyPrograms, FakePrograms, HeldByStopped, MovingMemory, MovingMemoryAndFastFloor, NoHosts,
                           NoPrograms, SlowBetweenHosts, SlowByHand, SlowedByStopped, SlowOverUcx, SlowWithMany,
                           WakesToWait)
from programs import CannotRun, Hosts, ProgramError, Series
from report import Row


def row(ratio, wants=">=", limit=1.5, **more):
    return Row("a row", ratio=Series(ratio), wants=wants, limit=limit, **more)


class Verdicts(unittest.TestCase):
    def test_the_median_decides_not_the_worst(self):
        self.assertEqual(row([1.0, 1.6, 1.7]).verdict, report.OK)
        self.assertEqual(row([1.4, 1.4, 9.0]).verdict, report.MISSED)

    def test_at_most(self):
        self.assertEqual(row([0.9], "<=", 1.0).verdict, report.OK)
        self.assertEqual(row([1.1], "<=", 1.0).verdict, report.MISSED)

    def test_the_limit_itself_is_reached(self):
        self.assertEqual(row([1.5]).verdict, report.OK)
        self.assertEqual(row([1.0], "<=", 1.0).verdict, report.OK)

    def test_a_floor_that_misses_too_is_the_machine(self):
        self.assertEqual(row([1.2], floor=Series([1.4])).verdict, report.MACHINE)
        self.assertEqual(row([1.2], floor=Series([1.6])).verdict, report.MISSED)
        self.assertEqual(row([1.6], floor=Series([1.4])).verdict, report.OK)

    def test_only_missed_and_failed_rows_fail(self):
        good = [row([2.0]), row([1.2], floor=Series([1.4])), row([1.0], limit=None, elsewhere=True), Row("report")]
        self.assertEqual(report.exit_code(good), 0)
        self.assertEqual(report.exit_code([*good, row([1.0])]), 1)
        self.assertEqual(report.exit_code([*good, Row("x", error="no program")]), 1)

    def test_a_figure_from_elsewhere_has_no_limit(self):
        self.assertEqual(row([0.1], limit=None, elsewhere=True).verdict, report.ELSEWHERE)
        self.assertIn("elsewhere:", "\n".join(report.legend([row([0.1], limit=None, elsewhere=True)])))
        with self.assertRaisesRegex(ValueError, "decides nothing"):
            row([0.1], elsewhere=True)

    def test_the_table_shows_every_row_and_says_what_was_missed(self):
        measured = [row([2.0]), Row("another", ratio=Series([1.0]), limit=2.0)]
        lines = report.table(measured)
        self.assertEqual(len(lines), 4)
        self.assertIn("MISSED", lines[3])
        self.assertIn("these rows are missed: another", list(report.legend(measured)))


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

    def test_several_hosts_are_a_bed_and_one_that_cannot_be_made_is_told_apart(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "program").touch()
            made = programs.Programs(folder, log=lambda text: None)
            command = made.command(Hosts(4, 2), "program", "-n", "3")
        self.assertTrue(command[0].endswith("test/hosts/run"))
        self.assertEqual(command[1:9], ["--hosts", "4", "--ranks", "2", "--rate", "1gbit", "--mpi-idle", "yield"])
        self.assertEqual(command[-2:], ["-n", "3"])
        with self.assertRaisesRegex(CannotRun, "not root"):
            made.finish(made.start(["sh", "-c", "echo not root >&2; exit 77"]), 10)

    def test_the_last_line_of_key_values(self):
        text = "epoch 1\nranks=2 images_per_second=1200 param_hash=0xab share=0.5\n"
        values = programs.Programs.key_values(text)
        self.assertEqual(values, {"ranks": 2.0, "images_per_second": 1200.0, "share": 0.5})

    def test_a_line_of_another_process_behind_the_results_is_passed_over(self):
        values = programs.Programs.key_values("epoch 1\nranks=2 steps=40\nsaid too late: x=1\n\n")
        self.assertEqual(values, {"ranks": 2.0, "steps": 40.0})
        with self.assertRaisesRegex(ProgramError, "no line of results"):
            programs.Programs.key_values("nothing\n")

    def test_the_output_is_whole_where_somebody_looks_meanwhile(self):
        made = programs.Programs("/proc/nonexistent", log=lambda text: None)
        with tempfile.TemporaryDirectory() as folder:
            go = pathlib.Path(folder) / "go"  # made at the second look
            looks = [lambda: None, go.touch]
            out = made.finish(made.start(["sh", "-c", f"echo first; until [ -e {go} ]; do sleep 0.1; done; echo last"]),
                              30, lambda: looks.pop(0)() if looks else None)
        self.assertEqual(out, "first\nlast\n")
        with self.assertRaisesRegex(ProgramError, "did not end within 1 s"):
            made.finish(made.start(["sleep", "60"]), 0.8, lambda: None)

    def test_a_program_that_is_missing_fails_its_rows_alone(self):
        bench = rows.Bench(programs.Programs("/proc/nonexistent", log=lambda text: None))
        measured = rows.measure(bench, ["1M", "idle"], lambda text: None)
        self.assertEqual([row.verdict for row in measured], [report.FAILED, report.FAILED])


class Training(unittest.TestCase):
    def test_ranks_in_step_go_at_the_pace_of_the_slower(self):
        made = programs.Programs("/proc/nonexistent", log=lambda text: None, quick=True)
        apart = iter([[90.0, 70.0], [60.0, 100.0]])

        def run_together(commands):
            speeds = next(apart) if len(commands) == 2 else [100.0]
            return [{"images_per_second": speed} for speed in speeds]

        made.run_together = run_together
        made.command = lambda ranks, program, *arguments: [program, *arguments]
        speeds = made.train(64)
        self.assertEqual(speeds["one"].values, [100.0, 100.0])
        self.assertEqual(speeds["in step"].values, [140.0, 120.0])
        self.assertEqual(made.raw["train_fashion_mnist, images per second"]["apart"],
                         [[90.0, 70.0], [60.0, 100.0]])


class Main(unittest.TestCase):
    @staticmethod
    def run_main(kind, *arguments):
        """The exit code, and what was printed."""
        out = io.StringIO()
        kept = rows.Programs, machine.busy_cores
        rows.Programs, machine.busy_cores = kind, lambda: 0.0
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
                return rows.main(list(arguments)), out.getvalue()
        finally:
            rows.Programs, machine.busy_cores = kept

    def test_all_rows_that_reach_their_limits_are_success(self):
        code, text = self.run_main(FakePrograms)
        self.assertEqual(code, 0, text)
        self.assertIn("no row is missed", text)

    def test_a_missed_row_fails_and_is_named(self):
        code, text = self.run_main(BusyPrograms)
        self.assertEqual(code, 1)
        self.assertIn("these rows are missed: idle engine, share of a core\n", text)

    def test_many_outstanding_operations_must_not_cost_more_each(self):
        self.assertEqual(self.run_main(FakePrograms, "--row", "outstanding")[0], 0)
        code, text = self.run_main(SlowWithMany, "--row", "outstanding")
        self.assertEqual(code, 1)
        self.assertIn("1.40", text)

    def test_submitting_and_waiting_must_cost_no_wake_up(self):
        self.assertEqual(self.run_main(FakePrograms, "--row", "waits")[0], 0)
        code, text = self.run_main(WakesToWait, "--row", "waits")
        self.assertEqual(code, 1)
        self.assertIn("64 KiB, submit and wait, to blocking", text)
        self.assertIn("1.50", text)

    def test_opening_by_hand_has_a_limit_and_takes_turns_with_mpirun(self):
        fake = FakePrograms()
        opening, job = rows.Bench(fake).rows_opening()
        self.assertEqual(fake.launchers, 2 * ["by hand", "mpirun", "mpirun", "by hand"] + ["by hand", "mpirun"])
        self.assertEqual((opening.verdict, opening.ratio.median), (report.OK, 0.02))
        self.assertAlmostEqual(job.ratio.median, 0.2)
        code, text = self.run_main(SlowByHand, "--row", "opening")
        self.assertEqual(code, 1)
        self.assertIn("these rows are missed: opening an engine, 2 ranks by hand [s]\n", text)

    def test_a_program_that_does_not_run_fails(self):
        code, text = self.run_main(NoPrograms, "--row", "idle")
        self.assertEqual(code, 1)
        self.assertIn("these rows did not run: idle", text)

    def test_a_machine_that_makes_no_hosts_is_no_failure(self):
        code, text = self.run_main(NoHosts, "--row", "hosts")
        self.assertEqual(code, 0)
        self.assertIn("skipped: hosts: not root", text)

    def test_only_the_rows_that_were_asked_for(self):
        code, text = self.run_main(BusyPrograms, "--row", "1M", "--row", "64K")
        self.assertEqual(code, 0)
        self.assertNotIn("idle", text)
        self.assertIn("1 MiB, to MPI", text)

    def test_the_json_has_every_row(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "rows.json"
            self.run_main(BusyPrograms, "--row", "1M", "--row", "idle", "--json", str(file))
            document = json.loads(file.read_text(encoding="utf-8"))
        self.assertEqual([(row["row"], row["verdict"]) for row in document["rows"]],
                         [("1 MiB, to MPI", report.OK), ("idle engine, share of a core", report.MISSED),
                          ("idle engine, bytes of messages", report.OK)])


class Limits(unittest.TestCase):
    # These are the budgets of this project: a row that changes its limit has to change it here too.
    BUDGETS = {
        "64 MiB, to memcpy": ("<=", 1.0),
        "64 MiB, to MPI": (">=", 3.0),
        "64 MiB, to MPI's best": (">=", 1.5),
        "16 MiB, to MPI": (">=", 1.5),
        "16 MiB, to MPI's best": (">=", 1.1),
        "1 MiB, to MPI": (">=", 1.5),
        "64 KiB, to MPI": (">=", 1.5),
        "8 B, data plane alone": (">=", 1.0),
        "8 B, submit to wait [us]": ("<=", 5.0),
        "prepared, 8 B, to MPI": ("<=", 1.0),
        "prepared, 8 B, to bare flags": ("<=", 3.0),
        "prepared, 4 KiB, to MPI": ("<=", 1.0),
        "prepared, 64 KiB, to MPI": ("<=", 0.65),
        "4 ranks, prepared, 8 B, to MPI": ("<=", 1.0),
        "4 ranks, prepared, 4 KiB, to MPI": ("<=", 1.0),
        "8 B by name, to MPI": ("<=", 3.0),
        "preloaded, 8 B, to MPI alone": ("<=", 1.0),
        "on the board, 1 MiB, to MPI": ("<=", 0.2),
        "on the board, 16 MiB, to memcpy": ("<=", 0.6),
        "4 ranks, 64 KiB, to MPI": (">=", 1.5),
        "4 ranks, 1 MiB, to MPI": (">=", 1.5),
        "4 ranks, 16 MiB, to MPI": (">=", 1.5),
        "4 ranks, 64 MiB, to MPI": (">=", 3.0),
        "ResNet-50 one by one, to flat": ("<=", 1.15),
        "MLP, 2 ranks at 128, to 2 x 1 rank": (">=", 0.85),
        "CNN, 2 ranks at 128, to 2 unconnected jobs": (">=", 0.95),
        "CNN, 2 hosts x 1, 64 a rank, step to bound": ("<=", 1.1),
        "CNN, 2 hosts x 1, 256 a rank, step to bound": ("<=", 1.1),
        "CNN, 2 hosts x 1, 64 a rank, step to one without overlap": ("<=", 1.0),
        "CNN, 2 hosts x 1, 256 a rank, step to one without overlap": ("<=", 1.0),
        "idle engine, share of a core": ("<=", 0.01),
        "idle engine, bytes of messages": ("<=", 0.0),
        "8 B, submit and wait, to blocking": ("<=", 1.25),
        "1 KiB, submit and wait, to blocking": ("<=", 1.25),
        "64 KiB, submit and wait, to blocking": ("<=", 1.05),
        "1 MiB, submit and wait, to blocking": ("<=", 1.05),
        "reduce-scatter of 8 B, 8,000 outstanding, to 1,000": ("<=", 1.3),
        "4 hosts x 1, 16 MiB, share of the line": (">=", 0.95),
        "2 hosts x 2, 64 MiB, share of the line": (">=", 0.95),
        "4 hosts x 1, 1 MiB, to MPI": (">=", 1.0),
        "2 hosts x 2, data plane, 8 B, to MPI": ("<=", 1.25),
        "4 hosts x 1, data plane, 4 KiB, to MPI": ("<=", 1.4),
        "4 hosts x 1, data plane, 64 KiB, to MPI": ("<=", 1.05),
        "4 hosts x 1, data plane, 1 MiB, to MPI": ("<=", 1.05),
        "4 hosts x 1, UCX, 16 MiB, share of the line": (">=", 0.95),
        "2 hosts x 2, UCX, 64 MiB, share of the line": (">=", 0.95),
        "2 hosts x 2, UCX, 8 B, to MPI": ("<=", 1.25),
        "4 hosts x 1, UCX, CPU seconds of all ranks per GiB, to MPI": ("<=", 0.5),
        "CNN, 2 hosts x 1 over ucx, 64 a rank, step to bound": ("<=", 1.1),
        "opening an engine, 2 ranks by hand [s]": ("<=", 0.1),
        "1 server, pull and push of 64 MiB over ipc, to memcpy": (">=", 0.5),
        "4 servers, pull and push of 64 MiB over ipc, to memcpy": (">=", 0.5),
        "2 hosts x 1, 1 server with a secret, pull of 64 MiB, share of the line": (">=", 0.95),
        "2 hosts x 1, 1 server with a secret, push of 64 MiB, share of the line": (">=", 0.95),
        "  2 servers, bytes of a worker's step, to all variables twice": ("<=", 1.05),
        "async, 2 workers beside a third that is stopped, to a job without it": (">=", 0.95),
    }
    # What other machines measured: a row that shows it has no limit and decides nothing.
    ELSEWHERE = {"8 B, to Horovod", "  Horovod's ratio to flat", "ResNet-50, to Horovod", "  PyTorch's ratio, over gloo"}

    def setUp(self):
        bench = rows.Bench(FakePrograms())
        self.rows = {row.name: row for row in rows.measure(bench, list(rows.GROUPS), self.fail)}

    def test_every_budget_has_its_limit_and_decides(self):
        for name, (wants, limit) in self.BUDGETS.items():
            with self.subTest(name):
                self.assertEqual((self.rows[name].wants, self.rows[name].limit), (wants, limit))
                self.assertFalse(self.rows[name].elsewhere)

    def test_a_figure_that_was_typed_in_is_shown_and_decides_nothing(self):
        shown = {row.name for row in self.rows.values() if row.elsewhere}
        self.assertEqual(shown, self.ELSEWHERE)
        verdicts = {name: row.verdict for name, row in self.rows.items()}
        for factor in (1e-9, 1e9):
            figures = {name: tuple(factor * figure for figure in value) if isinstance(value, tuple) else factor * value
                       for name, value in vars(rows).items() if name.startswith(("HOROVOD_", "PYTORCH_"))}
            self.assertEqual(len(figures), 4)
            with unittest.mock.patch.multiple(rows, **figures):
                measured = rows.measure(rows.Bench(FakePrograms()), list(rows.GROUPS), self.fail)
            self.assertEqual({row.name: row.verdict for row in measured}, verdicts)
            self.assertEqual(report.exit_code(measured), 0)

    def test_between_hosts_small_vectors_may_take_longer_than_mpi(self):
        limits = {size: rows.between_hosts_limit(size) for size in (8, 512, 4096, 61440, 65536, 1 << 30)}
        self.assertEqual(limits, {8: 1.25, 512: 1.25, 4096: 1.4, 61440: 1.4, 65536: 1.05, 1 << 30: 1.05})
        for row in rows.Bench(SlowBetweenHosts()).rows_hosts_data_plane():
            with self.subTest(row.name):
                self.assertEqual(row.ratio.median, 1.3)
                self.assertEqual(row.verdict, report.OK if row.limit == 1.4 else report.MISSED)

    def test_ucx_and_mpi_take_turns_and_are_compared_in_each(self):
        fake = FakePrograms()
        list(rows.Bench(fake).rows_transports_small())
        self.assertEqual(fake.transports, 2 * ["mpi", "ucx", "ucx", "mpi", "mpi", "ucx", "ucx", "mpi", "mpi", "ucx"])
        for row in (*rows.Bench(SlowOverUcx()).rows_transports_small(), *rows.Bench(SlowOverUcx()).rows_transports_cpu()):
            with self.subTest(row.name):
                self.assertAlmostEqual(row.ratio.median, 0.6 if "CPU" in row.name else 1.3)
                self.assertEqual(row.verdict, report.MISSED)

    def test_one_of_three_workers_is_stopped_for_a_while_and_the_others_are_compared_with_two(self):
        for kind, ratio, verdict in ((FakePrograms, 1.0, report.OK), (SlowedByStopped, 0.9, report.MISSED),
                                     (HeldByStopped, 0.5, report.MISSED)):
            fake = kind()
            first, *_ = rows.GROUPS["servers-stopped"](rows.Bench(fake))
            self.assertAlmostEqual(first.ratio.median, ratio, 2)
            self.assertEqual(first.verdict, verdict)
            self.assertEqual(fake.signals.count([signal.SIGSTOP, signal.SIGCONT]), 5)
            self.assertEqual(fake.signals.count([]), 5)

    def test_the_phases_of_a_call_add_up(self):
        times = [row.ronde.split()[0] for row in rows.GROUPS["phases"](rows.Bench(FakePrograms()))]
        self.assertEqual([float(us) for us in times], [1.0, 2.0, 3.0, 4.0, 5.0, 15.0])

    def test_near_and_far_cores_are_told_apart(self):
        fake = FakePrograms()
        for fake.core_to_core_ns, word in ((50.0, "near: 50 (50..50)"), (400.0, "far: 400 (400..400)")):
            first, *_ = rows.GROUPS["by-name"](rows.Bench(fake))
            self.assertEqual(first.ronde, word)

    def test_ratios_are_the_right_way_round(self):
        for name, ratio in (("64 MiB, to MPI", 1000.0), ("64 MiB, to memcpy", 0.001), ("8 B, submit to wait [us]", 1.0),
                            ("prepared, 8 B, to bare flags", 1.0), ("on the board, 1 MiB, to MPI", 0.001),
                            ("ResNet-50 one by one, to flat", 0.5), ("MLP, 2 ranks at 128, to 2 x 1 rank", 1.0),
                            ("CNN, 2 ranks at 128, to 2 unconnected jobs", 1.0),
                            ("CNN, 2 hosts x 1, 64 a rank, step to bound", 1.0),
                            ("CNN, 2 hosts x 1, 64 a rank, step to one without overlap", 0.5),
                            ("reduce-scatter of 8 B, 8,000 outstanding, to 1,000", 1.2),
                            ("2 servers, pull and push of 64 MiB over ipc, to memcpy", 0.625),
                            ("2 hosts x 1, 1 server with a secret, pull of 64 MiB, share of the line", 1.25),
                            ("MLP, 4 servers, 2 workers in async, to the ring of 2 ranks", 0.75),
                            ("  to two thirds of what all three did before", 1.0)):
            with self.subTest(name):
                self.assertAlmostEqual(self.rows[name].ratio.median, ratio)

    def test_the_floor_is_compared_with_the_copies_beside_ronde(self):
        for kind, verdict in ((MovingMemory, report.MACHINE), (MovingMemoryAndFastFloor, report.MISSED)):
            first, *_ = rows.Bench(kind()).rows_64m()
            with self.subTest(kind.__name__):
                self.assertEqual(first.verdict, verdict)
                self.assertAlmostEqual(first.floor.median, kind.floor_us / 0.7)

    def test_the_switch_to_windows_and_sizes_between_powers_are_measured(self):
        sizes = rows.DATA_PLANE_SIZES.split(",")
        for size in ("12K", "32K", "512K", "2M"):
            self.assertIn(size, sizes)

    def test_a_single_value_has_no_range(self):
        self.assertEqual(report.spread(Series([1.68])), "1.68")
        self.assertEqual(report.spread(Series([1.0, 2.0, 3.0]), " us"), "2.00 us (1.00..3.00)")

    def test_sizes_are_named_exactly(self):
        names = [report.size_text(size) for size in (8, 1000, 32768, 33792, 1 << 20, 3 << 19)]
        self.assertEqual(names, ["8 B", "1000 B", "32 KiB", "33 KiB", "1 MiB", "1536 KiB"])


if __name__ == "__main__":
    unittest.main()
