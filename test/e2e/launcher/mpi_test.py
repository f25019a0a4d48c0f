#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ronderun --mpi, with which Open MPI's mpirun starts the ranks.

    mpi_test.py <ronderun> [unittest's arguments]
"""

import os
import pathlib
import shutil
import signal
import sys
import tempfile
import unittest

from jobs import SOON, FourAtOnce, RunningJobs, children_of, late, main, processes_with, ronderun, shell

# In Python no program is linked with MPI.
STARTS_MPI = "import ctypes, time; ctypes.CDLL('libmpi.so.40', ctypes.RTLD_GLOBAL).MPI_Init(None, None); time.sleep(60)"


class Mpi(RunningJobs):
    def check(self, code, words, *arguments):
        result = ronderun(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertIn(words, result.stderr.splitlines()[-1] if words else "")
        return result

    def test_the_rank_that_failed_is_named(self):
        host = f"ronderun: rank 1 on host {os.uname().nodename} "
        one_fails, one_is_killed = (shell(f"[ $OMPI_COMM_WORLD_RANK = 1 ] && {end}; sleep 30")
                                    for end in ("exit 7", "kill -9 $$"))
        self.check(7, host + "ended with exit code 7", "-np", "2", "--mpi", *one_fails)
        self.check(137, host + "was killed by SIGKILL", "-np", "2", "--mpi", *one_is_killed)
        result = self.check(75, "has saved its state", "-np", "2", "--mpi", "--restarts", "1", *shell("exit 75"))
        self.assertIn("restart 1 of 1", result.stderr)

    def test_each_rank_hears_of_sigterm_and_the_job_ends_by_itself(self):
        for code, words in ((0, "the ranks have 20 s to end\n"), (75, "has saved its state"), (5, "ended with exit code 5")):
            run = self.start(f"trap 'echo asked; sleep 1; exit {code}' TERM", "while :; do sleep 0.05; done", "--mpi")
            run.terminate()
            output, errors = self.check_ends(run, code)
            self.assertEqual(output, "asked\n" * 2)
            self.assertIn(words, errors)

    def test_signals(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            run = self.start("trap '' INT TERM", "while :; do sleep 1; done", "--mpi", "--stop-grace", "0")
            run.send_signal(number)
            self.check_ends(run, 128 + number)

    def test_kill(self):
        """Of ronderun, of the process that has started mpirun, and of mpirun."""
        for depth, code in ((0, -9), (1, 1), (2, 137)):
            run = self.start("trap '' INT TERM", "while :; do sleep 1; done", "--mpi")
            victim = run.pid
            for _ in range(depth):
                victim, = children_of(victim)
            os.kill(victim, signal.SIGKILL)
            late.finish(run, SOON)
            self.assertEqual(run.returncode, code)
            late.until(lambda: not processes_with(self.mark), SOON, "the end of all")

    def test_output(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(0, "", "-np", "2", "--mpi", "--output-dir", folder, *shell("echo $OMPI_COMM_WORLD_RANK"))
            self.assertEqual([pathlib.Path(folder, f"rank.{rank}.out").read_text() for rank in (0, 1)], ["0\n", "1\n"])
        result = ronderun("-np", "1", "--mpi", "--verbose", "--mpi-args", "--mca mpi_show_handle_leaks 1", *shell("exit 4"))
        self.assertIn(" --mca mpi_show_handle_leaks 1 ", result.stderr)
        self.assertIn("non-zero", result.stderr)  # mpirun's own words

    def test_a_program_that_is_linked_with_mpi(self):
        result = ronderun("-np", "2", "--dry-run", "ompi_info")
        self.assertRegex(result.stderr, r"mpirun starts the ranks, since the program is linked with libmpi\.so")
        self.assertRegex(result.stdout, r"^mpirun -np 2 (.|\n)* ompi_info\n$")

    def test_a_program_that_nobody_sees_is_linked(self):
        self.check(2, "knows nothing of the other ranks that ronderun has started: use --mpi", "-np", "2", sys.executable,
                   "-c", STARTS_MPI)

    def test_no_mpirun(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(shutil.which("bash"), folder + "/bash")
            result = ronderun("-np", "2", "--mpi", "bash", PATH=folder)
            self.assertEqual(result.returncode, 127)
            self.assertIn("openmpi-bin", result.stderr)
        self.assertEqual(ronderun("-np", "2", "--mpi", "echo", ":").returncode, 2)


if __name__ == "__main__":
    main(FourAtOnce)
