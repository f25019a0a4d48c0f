#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ronderun --restarts with the real mpirun: what is started again, and what the ranks see of it.

    restarts_test.py <ronderun> [unittest's arguments]
"""

import pathlib
import signal
import tempfile
import time

from jobs import RunningJobs, main, ronderun, shell, wait_until

FAILS_ONCE = "echo attempt $RONDE_RESTART_ATTEMPT; [ $RONDE_RESTART_ATTEMPT = 1 ] || exit 3"
FAILS_TWICE = FAILS_ONCE.replace("= 1", "= 2")


class Restarts(RunningJobs):
    def check(self, code, starts, script, *options):
        """`starts` is how often each of two ranks starts."""
        result = ronderun("-np", "2", *options, *shell(f"echo start; {script}"))
        self.assertEqual(result.returncode, code, result.stderr)
        started = result.stdout.count("start\n")
        self.assertLessEqual(started, 2 * starts)
        self.assertGreater(started, 2 * (starts - 1), result.stderr)  # the second may die before its line
        self.assertEqual(result.stderr.count(": restart "), starts - 1, result.stderr)
        return result

    def test_until_it_succeeds(self):
        started = time.monotonic()
        result = self.check(0, 3, FAILS_TWICE, "--restarts", "5")
        self.assertGreaterEqual(time.monotonic() - started, 3)  # pauses of 1 and of 2 s
        self.assertEqual(sorted(set(result.stdout.split("\n"))), ["", "attempt 0", "attempt 1", "attempt 2", "start"])
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 2, lines)
        for number, line in enumerate(lines, 1):
            self.assertRegex(line, f"^ronderun: .*exit code 3: restart {number} of 5 follows in {number} s$")

    def test_no_more_than_so_often(self):
        result = self.check(3, 2, FAILS_TWICE, "--restarts", "1")
        self.assertRegex(result.stderr.splitlines()[-1], "exit code 3$")
        self.check(3, 1, FAILS_TWICE.replace("=", "=="))

    def test_a_killed_rank_is_a_failure(self):
        self.check(0, 2, '[ "$RONDE_RESTART_ATTEMPT-$OMPI_COMM_WORLD_RANK" = 0-1 ] && kill -KILL $$; '
                   '[ $RONDE_RESTART_ATTEMPT = 1 ] || sleep 30', "--restarts", "1")

    def test_a_wrong_command_line_is_not(self):
        self.check(2, 1, "exit 2", "--restarts", "2")
        result = ronderun("-np", "4", "-H", "localhost:2", "--restarts", "2", "true")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (1, 1), result.stderr)
        result = ronderun("-np", "2", "--restarts", "2", "./not_there")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (127, 1), result.stderr)

    def test_no_restart_after_a_signal_to_ronderun(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            run = self.start(":", "sleep 60", "--restarts", "2")
            run.send_signal(number)
            _, errors = self.check_ends(run, 128 + number)
            self.assertNotIn("restart", errors)
        run = self.start("trap 'exit 5' TERM", "while :; do sleep 0.05; done", "--restarts", "2")
        run.terminate()
        _, errors = self.check_ends(run, 5)
        self.assertNotIn("restart", errors)

    def test_sigterm_in_the_pause(self):
        with tempfile.TemporaryFile(mode="w+") as file:
            # The third pause has 4 s.
            run = self.start("[ $RONDE_RESTART_ATTEMPT = 0 ]", "exit 3", "--restarts", "5", ranks=1, stderr=file)

            def said():
                file.seek(0)
                return file.read()

            wait_until(lambda: "restart 3 of 5 follows in 4 s" in said(), "the third pause")
            started = time.monotonic()
            run.terminate()
            self.check_ends(run, 143)
            self.assertLess(time.monotonic() - started, 2)
            self.assertIn("SIGTERM: the job is not started again", said())

    def test_a_folder_keeps_what_each_start_printed(self):
        with tempfile.TemporaryDirectory() as folder:
            result = ronderun("-np", "1", "--restarts", "1", "--output-dir", folder,
                              *shell(FAILS_ONCE + "; echo >&2 well"))
            self.assertEqual(result.returncode, 0, result.stderr)
            out, err = (pathlib.Path(folder, name).read_text() for name in ("rank.0.out", "rank.0.err"))
        self.assertEqual(out, "attempt 0\nattempt 1\n")
        self.assertEqual(err, "ronderun: restart 1\nwell\n")

    def test_tags(self):
        result = ronderun("-np", "1", "--restarts", "1", "--tag", *shell(FAILS_ONCE))
        self.assertEqual((result.returncode, result.stdout),
                         (0, "[0] attempt 0\n[0] attempt 1\n"), result.stderr)

    def test_without_restarts_the_ranks_see_no_attempt(self):
        result = ronderun("-np", "1", *shell("echo ${RONDE_RESTART_ATTEMPT-none}"))
        self.assertEqual(result.stdout, "none\n")


if __name__ == "__main__":
    main()
