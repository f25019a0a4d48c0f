#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests ./dev scaling without hosts: what fits into its time, the table, the picture and the JSON."""

import contextlib
import io
import json
import pathlib
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree

import scaling
import scaling_plot
from programs import CannotRun, Hosts, ProgramError, Programs
from scaling import CNN, TWO_CLASSES, Case, Measured


def measured(hosts=1, rate="1gbit", program=TWO_CLASSES, steps=None, **more):
    case = Case(program, Hosts(hosts, 1, rate))
    figures = {"seconds": 60.0, "images_per_second": 1000.0 * hosts, "compute": 0.75, "wait": 0.25, "transfer": 0.5, **more}
    return Measured(case, steps or case.steps, **figures)


class Cases(unittest.TestCase):
    def test_epochs_are_divided_by_the_hosts(self):
        self.assertEqual([Case(TWO_CLASSES, Hosts(hosts, 1)).steps for hosts in (1, 2, 4)], [3760, 1880, 940])
        self.assertEqual({case.steps for case in scaling.CASES if case.program == CNN}, {100})

    def test_a_rank_has_as_many_images_on_every_number_of_hosts(self):
        flags = Case(CNN, Hosts(4, 1)).flags(100)
        self.assertEqual(flags[flags.index("--global-batch") + 1], "256")
        flags = Case(TWO_CLASSES, Hosts(4, 1)).flags(7)
        self.assertEqual(flags[flags.index("--batch") + 1], "64")
        self.assertEqual(flags[flags.index("--epochs") + 1], "20")

    def test_every_layout_is_measured_with_both_programs(self):
        self.assertEqual({(case.program, case.layout) for case in scaling.CASES},
                         {(program, layout) for program in (CNN, TWO_CLASSES) for layout in (
                             "1 host", "2 hosts, 1 Gbit/s", "4 hosts, 1 Gbit/s", "2 hosts, 100 Mbit/s",
                             "4 hosts, 100 Mbit/s")})

    def test_mpi_keeps_the_core_that_it_was_given(self):
        self.assertEqual({case.hosts.mpi_idle for case in scaling.CASES}, {"spin"})

    def test_hosts_that_share_cores_are_overhead_not_scaling(self):
        self.assertEqual(measured(4).note(2), "4 hosts share 2 cores: overhead, not scaling")
        self.assertEqual(measured(2).note(1), "2 hosts share 1 core: overhead, not scaling")
        self.assertEqual((measured(2).note(2), measured(4).note(4)), ("", ""))

    def test_a_part_of_the_steps_is_scaled_up_and_said(self):
        part = measured(2, steps=188)
        self.assertAlmostEqual(part.whole_seconds, 600.0)
        self.assertEqual(part.note(2), "from the first 188 of 1880 steps")
        self.assertEqual(measured(2).whole_seconds, 60.0)


class Time(unittest.TestCase):
    def test_as_many_steps_as_fit(self):
        case = Case(TWO_CLASSES, Hosts(1, 1))
        self.assertEqual(scaling.steps_in(1000.0, 0.1, case), 3760)
        self.assertEqual(scaling.steps_in(scaling.START_SECONDS + 10.0, 0.1, case), 100)
        self.assertEqual(scaling.steps_in(1.0, 0.1, case), 20)
        self.assertEqual(scaling.steps_in(1.0, 0.1, Case(CNN, Hosts(1, 1))), 5)

    def test_a_slow_machine_takes_fewer_steps_and_ends_in_time(self):
        for slowness in (0.1, 1.0, 3.0, 10.0, 100.0):
            clock = FakeClock()
            programs = FakePrograms(clock=clock, slowness=slowness)
            rows = scaling.Scaling(programs, quiet(), 1200.0, clock).all(scaling.CASES)
            with self.subTest(slowness):
                self.assertLess(clock(), 1200.0)
                self.assertEqual(slowness <= 10.0, not any(row.error for row in rows))
                self.assertEqual(slowness <= 1.0, all(row.steps == row.case.steps for row in rows))

    def test_where_no_time_is_left_nothing_starts(self):
        clock = FakeClock()
        programs = FakePrograms(clock=clock)
        rows = scaling.Scaling(programs, quiet(), scaling.RESERVE_SECONDS + 1.0, clock).all(scaling.CASES)
        self.assertEqual({row.error for row in rows}, {"no time was left"})
        self.assertEqual(programs.started, [])


class FakeClock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def quiet():
    return scaling.Progress(io.StringIO(), len(scaling.CASES))


class FakePrograms:
    """Every step takes `slowness` times as long as expected, and every job 4 seconds more. One that is still under
    way at its limit is killed."""

    def __init__(self, folder="", log=None, quick=False, clock=None, slowness=1.0):
        del folder, log
        self.quick, self.clock, self.slowness = quick, clock or FakeClock(), slowness
        self.started = []

    key_values = staticmethod(Programs.key_values)

    def command(self, hosts, program, *flags):
        return [hosts, program, *flags]

    def start(self, command):
        self.started.append(command)
        return unittest.mock.Mock(poll=lambda: 0, command=command)

    def finish(self, job, seconds, tick):
        tick()
        hosts, program, *flags = job.command
        steps = int(flags[flags.index("--steps") + 1])
        case = Case(TWO_CLASSES if program == TWO_CLASSES else CNN, hosts)
        took = steps * self.slowness * case.expected_step
        self.clock.now += min(seconds, took + 4.0)
        if took + 4.0 > seconds:
            raise ProgramError(f"the program did not end\nwithin {seconds} s")
        return (f"ranks={hosts.hosts} seconds={took} steps={steps} images_per_second={steps * 64 * hosts.hosts / took} "
                "compute_share=0.750 wait_share=0.250 transfer_share=0.500\nsaid too late\n")


class NoHosts(FakePrograms):
    def finish(self, job, seconds, tick):
        raise CannotRun("cannot make hosts here: not root")


class OneFails(FakePrograms):
    def finish(self, job, seconds, tick):
        if (job.command[0].hosts, job.command[0].rate) == (2, "1gbit") and job.command[1] == TWO_CLASSES:
            raise ProgramError("exit code 1:\nit broke")
        return super().finish(job, seconds, tick)


class Main(unittest.TestCase):
    def run_main(self, kind, *arguments):
        """The exit code, both outputs, the picture and the JSON."""
        out, err = io.StringIO(), io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), \
                unittest.mock.patch.multiple(scaling, note_busy_machine=lambda log: False):
            svg, rows = pathlib.Path(folder) / "a.svg", pathlib.Path(folder) / "a.json"
            code = scaling.main(["--svg", str(svg), "--json", str(rows), *arguments], kind)
            files = [file.read_text(encoding="utf-8") if file.exists() else "" for file in (svg, rows)]
        return code, out.getvalue(), err.getvalue(), *files

    def test_table_picture_and_json(self):
        code, out, err, svg, rows = self.run_main(FakePrograms)
        self.assertEqual(code, 0, out + err)
        self.assertEqual(sum(line.startswith((TWO_CLASSES, CNN)) for line in out.splitlines()), 10)
        self.assertIn("7.5 -> 5 minutes", out)
        texts = [node.text for node in xml.etree.ElementTree.fromstring(svg).iter() if node.text]
        for layout in ("1 host", "2 hosts, 1 Gbit/s", "4 hosts, 100 Mbit/s"):
            self.assertEqual(texts.count(layout), 2)
        self.assertIn("the guide, before", texts)
        document = json.loads(rows)
        self.assertEqual([row["hosts"] for row in document["rows"]], [1, 2, 4, 2, 4] * 2)
        first = document["rows"][0]
        self.assertEqual((first["program"], first["seconds"], first["steps"]), (TWO_CLASSES, 94.0, 3760))
        self.assertEqual((first["compute_share"], first["wait_share"], first["transfer_share"]), (0.75, 0.25, 0.5))

    def test_a_row_to_one_host_is_a_ratio_of_images(self):
        rows = [measured(), measured(2, images_per_second=1500.0)]
        self.assertIn("1.50 x", scaling.table(rows, 2)[3])

    def test_a_job_that_fails_leaves_the_others(self):
        code, out, _, svg, rows = self.run_main(OneFails)
        self.assertEqual(code, 1)
        self.assertIn("exit code 1: it broke", out)
        self.assertIn("not measured", svg)
        self.assertEqual([row["seconds"] is None for row in json.loads(rows)["rows"]], [False, True] + [False] * 8)

    def test_without_hosts_one_line_says_so(self):
        code, out, err, svg, _ = self.run_main(NoHosts)
        self.assertEqual((code, out, svg), (1, "", ""))
        self.assertEqual(err, "./dev scaling: cannot make hosts here: not root\n")

    def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(self):
        code, out, err, *_ = self.run_main(FakePrograms, "--svg", "/proc/nonexistent/a.svg")
        self.assertEqual((code, out, err), (1, "", "./dev scaling: /proc/nonexistent/a.svg: No such file or directory\n"))

    def test_nothing_measured_is_still_a_picture(self):
        code, _, _, svg, _ = self.run_main(FakePrograms, "--minutes", "0.5")
        self.assertEqual(code, 1)
        xml.etree.ElementTree.fromstring(svg)


class Drawing(unittest.TestCase):
    def test_bars_are_as_long_as_the_shares_of_the_time(self):
        drawn = scaling_plot.Panel(0, "title", (1.0, "s"), 120.0)
        drawn.bar(measured(seconds=60.0), 2)
        widths = [float(shape.split('width="')[1].split('"')[0]) for shape in drawn.shapes if shape.startswith("<rect")]
        whole = drawn.x(120.0) - drawn.x(0.0)
        for width, share in zip(widths, (0.75, 0.25, 0.5), strict=True):
            self.assertAlmostEqual(width, 0.5 * share * whole, delta=0.1)

    def test_an_axis_has_a_few_round_numbers(self):
        for most in (0.07, 1.0, 7.5, 126.0, 900.0):
            step = scaling_plot.tick_step(most)
            self.assertTrue(3 <= most / step <= 8, (most, step))

    def test_a_bar_on_a_terminal_and_lines_elsewhere(self):
        for stream in (Terminal(), io.StringIO()):
            progress = scaling.Progress(stream, 4)
            progress.begin("first")
            progress.end("first: 3.0 s")
            progress.begin("second")
            self.assertEqual("[=====               ] 1 of 4" in stream.getvalue(), stream.isatty())
            self.assertIn(" 1 of 4, after ", stream.getvalue())
            self.assertEqual(stream.getvalue().count("\n"), 1)


if __name__ == "__main__":
    unittest.main()
