#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which tests are tried a second time, and which never: planted tests (planted/planted.py), registered as all scripts
of this repository are, under the runner of ./dev test.

    chance_test.py CMAKE CTEST COMPILER [unittest's arguments]
"""
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

CMAKE, CTEST, COMPILER = sys.argv[1:4]
RUNNER = [sys.executable, "-B", str(HERE.parent / "second_tries.py")]
# What is late once, and why.
LATE = {"late_at_most": r"what was measured took 2\.0 s, and should take at most 1 s",
        "late_until": r"the wait for what comes took \d+\.\d s, and should take at most 0\.2 s",
        "late_run": r"sleep 0\.3 took \d+\.\d s, and should take at most 0\.2 s",
        "late_finish": r"sleep 0\.3 took \d+\.\d s, and should take at most 0\.2 s",
        "late_before_a_skip": r"before a skip",
        "late_start": r"a job could not start in time: rank 1 \(host h\) took no part in meeting in time; .*"}
NOT_RIGHT_AGAIN = ("late_twice", "late_then_wrong", "late_then_skipped")
# How ctest lists what is never tried again; the runner finds out which of them do not count as skipped.
RED = {"wrong": "Failed", "wrong_text": "Failed", "wrong_code": "Failed", "crash": "SEGFAULT", "hang": "Timeout",
       "hang_in_until": "Failed", "hang_in_run": "Failed", "ended_in_until": "Failed", "sanitizer_report": "Failed",
       "crash_at_the_start": "Failed", "prints_the_line": "Skipped", "prints_another_line": "Skipped",
       "prints_a_late_test": "Skipped"}
FALSE = [name for name, how in RED.items() if how == "Skipped"]
ALL = ("passes", "skipped", *LATE, *NOT_RIGHT_AGAIN, *RED)


class Planted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.build = pathlib.Path(folder.name) / "preset"
        cls.tries = pathlib.Path(folder.name) / "second_tries"
        cls.sleep = f"6{os.getpid()}"  # nothing else sleeps so long
        functions = HERE.parent / "cmake" / "RondeTests.cmake"
        cls.started([CMAKE, "-S", HERE / "planted", "-B", cls.build, "-G", "Ninja", f"-DFUNCTIONS={functions}",
                     f"-DPYTHON={sys.executable}", f"-DCOMPILER={COMPILER}", f"-DNAMES={';'.join(ALL)}"])

    def setUp(self):
        for mark in self.build.glob("*.tried"):
            mark.unlink()

    @classmethod
    def started(cls, words):
        # As from a shell: what this test has of ctest is not for those inside.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SECOND_TRIES_")}
        return subprocess.run(list(map(str, words)), env={**environment, "PLANTED_SLEEP": cls.sleep}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)

    def ctest(self, names):
        return [CTEST, "--test-dir", self.build, "--parallel", "4", "--tests-regex", f"^({'|'.join(names)})$"]

    def runner(self, what, names=()):
        return self.started([*RUNNER, what, self.build, *(self.ctest(names) if names else [])])

    def lines(self):
        return self.runner("lines").stdout.splitlines()

    def file(self, name):
        return (self.tries / f"preset.{name}.txt").read_text(encoding="utf-8")

    @staticmethod
    def listed(text):
        """How ctest lists the tests that did not pass, by name."""
        return dict(re.findall(r"^\s+\d+ - (\w+) \((\w+)\)", text, re.MULTILINE))

    def sleepers(self):
        """Processes that the tests have left."""
        found = []
        for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                found += [file] if f"sleep\0{self.sleep}\0".encode() in file.read_bytes() else []
        return found

    def test_what_was_late_once_is_green(self):
        done = self.runner("run", ["passes", "skipped", *LATE])
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("100% tests passed, 0 tests failed out of 8", done.stdout)
        self.assertEqual(self.listed(done.stdout), {"skipped": "Skipped", **{name: "Skipped" for name in LATE}})
        lines = self.lines()
        self.assertEqual(len(lines), len(LATE), lines)
        for name, why in LATE.items():
            self.assertTrue(any(re.fullmatch(rf"second try: {name} \(preset: {why}\)", line) for line in lines), (name, lines))
            first = self.file(f"{name}.first")
            self.assertRegex(first, rf"\n{late.MARK}{why}\n<end of output>\n")
            self.assertIn("Test Passed.", self.file(f"{name}.second"))
            self.assertNotIn("late: ", self.file(f"{name}.second"))
        self.assertIn("said last, without an end of the line", self.file("late_at_most.first"))
        self.assertEqual(len(list(self.tries.glob("*.txt"))), 2 * len(LATE))

    def test_whatever_else_is_red_is_not_tried_again(self):
        done = self.runner("run", RED)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(self.listed(done.stdout), RED, done.stdout)
        self.assertEqual(self.lines(), [f"FAILED: {name} was not late, and has printed '{late.MARK}'"
                                        for name in FALSE])
        self.assertEqual(list(self.tries.glob("*.second.txt")), [])
        self.assertEqual(self.sleepers(), [])

    def test_what_is_late_and_not_right_the_second_time_is_red(self):
        done = self.runner("run", ["passes", "late_run", *NOT_RIGHT_AGAIN])
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("100% tests passed, 0 tests failed out of 5", done.stdout)  # ctest itself sees nothing
        ends = {re.match("second try: (\\w+)", line)[1]: line.rpartition(")")[2] for line in self.lines()}
        self.assertEqual(ends, {"late_run": "", **{name: ": FAILED" for name in NOT_RIGHT_AGAIN}})
        self.assertNotIn(late.MARK, self.file("late_twice.second"))

    def test_what_only_looks_late_is_red(self):
        done = self.runner("run", ["passes", FALSE[0]])
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("100% tests passed, 0 tests failed out of 2", done.stdout)

    def test_second_tries_may_come_later_and_keep_the_log_of_the_first(self):
        done = self.runner("first", ["wrong", "late_run"])
        self.assertEqual(done.returncode, 8, done.stdout)  # ctest's own
        self.assertEqual(self.listed(done.stdout), {"wrong": "Failed", "late_run": "Skipped"})
        line, = self.lines()
        self.assertRegex(line, "^second try: late_run .*: not yet$")
        log = self.build / "Testing" / "Temporary" / "LastTest.log"
        before = log.read_text()
        self.assertIn("Test: wrong", before)
        self.assertEqual(self.runner("again").returncode, 0)  # the other failure was the first run's
        self.assertEqual(log.read_text(), before)
        line, = self.lines()
        self.assertRegex(line, f"^second try: late_run \\(preset: {LATE['late_run']}\\)$")
        # The next run begins anew.
        self.assertEqual(self.runner("run", ["passes"]).returncode, 0)
        self.assertEqual((self.lines(), list(self.tries.glob("*.txt"))), ([], []))

    def test_by_hand_a_late_test_has_failed(self):
        done = self.started([*self.ctest(["late_twice"]), "--verbose"])
        self.assertEqual(self.listed(done.stdout), {"late_twice": "Failed"})
        self.assertRegex(done.stdout, r"late: as always\n")
        self.assertNotIn(late.MARK, done.stdout)

    def test_a_ctest_that_does_not_run_is_red(self):
        self.assertNotEqual(self.started([*RUNNER, "run", self.build, "false"]).returncode, 0)
        self.assertNotEqual(self.started([*RUNNER, "run", self.build, "true"]).returncode, 0)
        self.assertEqual(self.runner("again").returncode, 1)
        self.assertEqual(self.lines(), ["FAILED: the tests of preset have no first run that came to its end"])
        killed = self.started([*RUNNER, "run", self.build, "sh", "-c", "kill -9 $$"])
        self.assertEqual(killed.returncode, 1, killed.stdout)


class Helper(unittest.TestCase):
    def test_outside_of_a_test_a_missed_deadline_is_an_error(self):
        late.at_most(1, 1, "this")
        with unittest.mock.patch.object(late, "_notes", None), self.assertRaisesRegex(AssertionError, "at most 1 s"):
            late.at_most(1.1, 1, "this")

    def test_four_times_the_deadline_is_a_hang(self):
        with unittest.mock.patch.object(late, "_notes", []), contextlib.redirect_stdout(None):
            late.at_most(4, 1, "this")
            with self.assertRaisesRegex(AssertionError, "at most 1 s"):
                late.at_most(4.1, 1, "this")

    def test_a_job_did_not_start_in_time_if_each_rank_that_failed_says_so(self):
        line = "rank 1 took no part in meeting in time: RONDE_START_TIMEOUT_SECONDS raises the limit\n"
        for said, codes, is_late in ((line, [1], True), (2 * line, [3, 3], True), (line, [0, 1], True),
                                     (line, [3, 1], False), (line, [], False), (line, [-9], False), (line, [139], False),
                                     (line, [0], False), ("rank 1 failed\n", [1], False),
                                     ("ORTE was unable to reliably start one or more daemons.\n", [1], True),
                                     (line + "Segmentation fault\n", [1], False)):
            with unittest.mock.patch.object(late, "_notes", []), contextlib.redirect_stdout(None):
                try:
                    late.unless_started(said, *codes)
                    was_late = False
                except late.NotStarted:
                    was_late = True
            self.assertEqual(was_late, is_late, (said, codes))

    def test_patience_ends_before_ctest_would_end_the_test(self):
        for limit, seconds, patience in (("1000", 100, 400), ("1000", 300, 990), ("100", 100, 100), ("inf", 500, 2000)):
            with unittest.mock.patch.dict(os.environ, SECOND_TRIES_LIMIT=limit), \
                    unittest.mock.patch.object(late.time, "monotonic", return_value=late.BEGAN):
                self.assertAlmostEqual(late.patience_for(seconds), patience)


if __name__ == "__main__":
    late.end(lambda: unittest.main(argv=[sys.argv[0], *sys.argv[4:]]))
