# SPDX-License-Identifier: Apache-2.0
"""Jobs of ronderun for the tests beside this file, which take its path as their first argument."""

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

RONDERUN = os.path.abspath(sys.argv[1])
DEADLINE = 120  # seconds for anything
# The end of all ranks, where nobody has a grace: they are asked, and killed two seconds later.
SOON = 3
# Another host is this one under another name: its agent is a program of its own, and finds that name in $OF_AGENT.
START = ("--start", "env OF_AGENT={host}")
ELSEWHERE = ("-H", "elsewhere:2", *START)
# Without it mpirun starts the ranks of several hosts.
several_hosts = unittest.skipUnless(
    pathlib.Path(RONDERUN).parents[1].joinpath("lib", "libronde_ucx.so").exists(), "this build has no libronde_ucx.so")


def environment(**more):
    """Without the switches that the test runner sets: ronderun must not need them."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("OMPI_", "RONDE_", "SLURM_", "PBS_", "LSB_"))}
    return {**kept, **more}


def ronderun(*arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=None, **more):
    return late.run([RONDERUN, *arguments], DEADLINE, env=environment(**more), stdin=stdin, stdout=stdout, cwd=cwd)


def shell(script):
    return ["bash", "-c", script]


def processes_with(mark):
    """Processes with this text in their environment: how the ranks of one test are recognised."""
    found = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit() and mark.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            pass
    return found


def children_of(parent):
    found = []
    for process in pathlib.Path("/proc").iterdir():
        try:
            if process.name.isdigit():
                after_name = (process / "stat").read_text().rpartition(")")[2]
                if after_name.split()[1] == str(parent):
                    found.append(int(process.name))
        except OSError:
            pass
    return found


class RunningJobs(unittest.TestCase):
    """Jobs that are still running when the test goes on."""

    def setUp(self):
        self.mark = f"LAUNCHER_TEST=mark-{os.getpid()}-{self.id()}-"
        self.runs = []

    def tearDown(self):
        for process in processes_with(self.mark):
            with contextlib.suppress(ProcessLookupError):  # one that has just ended
                os.kill(process, signal.SIGKILL)
        for run in self.runs:
            late.finish(run, DEADLINE)

    def start(self, prepare, work, *options, ranks=2, variables=None, **how):
        """Starts ranks and waits until each has prepared itself."""
        name, value = self.mark.split("=", 1)
        run = subprocess.Popen([RONDERUN, "-np", str(ranks), *options, *shell(f"{prepare}; echo ready; {work}")],
                               env=environment(**{name: value}, **(variables or {})), text=True, **{
                                   "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                                   "stderr": subprocess.PIPE, "start_new_session": True, **how})
        self.runs.append(run)
        for _ in range(ranks):
            self.assertEqual(run.stdout.readline(), "ready\n")
        return run

    def check_ends(self, run, code, seconds=DEADLINE):
        output, errors = late.finish(run, seconds)
        self.assertEqual(run.returncode, code, errors)
        self.assertEqual(processes_with(self.mark), [])
        return output, errors


class FourAtOnce(unittest.TestSuite):
    """For tests that wait most of the time, each with jobs of its own. A class may name in ALONE those that no other
    thread may disturb: they run before."""

    def cases(self):
        for test in self:
            yield from test.cases() if isinstance(test, FourAtOnce) else [test]

    def run(self, result, debug=False):
        def one(test):
            began, own = time.monotonic(), unittest.TestResult()
            test.run(own)
            print(f"{time.monotonic() - began:5.1f} s: {test.id()}", flush=True)
            return own

        alone, beside = [], []
        for test in self.cases():
            (alone if test.id().rpartition(".")[2] in getattr(test, "ALONE", ()) else beside).append(test)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for own in [*map(one, alone), *pool.map(one, beside)]:
                result.testsRun += own.testsRun
                for kind in ("failures", "errors", "skipped", "expectedFailures", "unexpectedSuccesses"):
                    getattr(result, kind).extend(getattr(own, kind))
        return result


def main(suite=unittest.TestSuite):
    loader = unittest.TestLoader()
    loader.suiteClass = suite
    late.end(lambda: unittest.main(argv=[sys.argv[0], *sys.argv[2:]], testLoader=loader))
