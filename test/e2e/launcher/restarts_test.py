#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ronderun --restarts: what is started again, and what the ranks see of it.

    restarts_test.py <ronderun> [unittest's arguments]
"""

import pathlib
import signal
import tempfile
import time

from jobs import DEADLINE, FourAtOnce, RunningJobs, late, main, ronderun, several_hosts, shell

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
        self.check(0, 2, '[ "$RONDE_RESTART_ATTEMPT-$RONDE_RANK" = 0-1 ] && kill -KILL $$; '
                   '[ $RONDE_RESTART_ATTEMPT = 1 ] || sleep 30', "--restarts", "1")

    def test_a_training_that_was_stopped_goes_on(self):
        """A rank alone was told to stop, as by the shutdown of its host."""
        result = self.check(0, 2, FAILS_ONCE.replace("exit 3", "exit 75"), "--restarts", "1")
        self.assertRegex(result.stderr, "stopped and has saved its state .*: restart 1 of 1 follows in 1 s\n$")
        result = self.check(75, 1, "exit 75")
        self.assertIn("goes on when it is started again", result.stderr)

    def test_what_a_repeat_cannot_mend_is_not(self):
        self.check(2, 1, "exit 2", "--restarts", "2")
        result = self.check(78, 1, "exit 78", "--restarts", "2")
        self.assertIn("starting it again does not help", result.stderr)

    def test_a_wrong_command_line_is_not(self):
        result = ronderun("-np", "4", "-H", "localhost:2", "--restarts", "2", "true")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stderr)
        result = ronderun("-np", "2", "--restarts", "2", "./not_there")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (127, 1), result.stderr)

    def test_no_restart_after_a_signal_to_ronderun(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            run = self.start(":", "sleep 60", "--restarts", "2")
            run.send_signal(number)
            _, errors = self.check_ends(run, 128 + number)
            self.assertNotIn("restart", errors)
        for code, words in ((5, "exit code 5"), (75, "has saved its state")):
            run = self.start(f"trap 'exit {code}' TERM", "while :; do sleep 0.05; done", "--restarts", "2")
            run.terminate()
            _, errors = self.check_ends(run, code)
            self.assertNotIn("restart ", errors)
            self.assertIn(words, errors)

    def test_the_same_failure_at_once_twice(self):
        """Each start would say it once more."""
        for options in ([], ["--tag"]):
            with self.subTest(options=options):
                result = self.check(1, 2, 'echo "other flags" >&2; exit 1', "--restarts", "5", *options)
                self.assertIn("two starts in a row have ended at once", result.stderr.splitlines()[-1])

    def test_another_failure_at_once(self):
        self.check(1, 3, 'echo "$RONDE_RESTART_ATTEMPT" >&2; exit 1', "--restarts", "2")

    def test_a_folder_keeps_what_a_failure_says(self):
        for code, words in ((1, 'echo "other flags"'), (0, "true")):
            with tempfile.TemporaryDirectory() as folder:
                result = ronderun("-np", "2", "--restarts", "2", "--output-dir", folder, *shell(
                    f"{words} >&2; [ $RONDE_RESTART_ATTEMPT = 2 ] || exit 1"))
                self.assertEqual(result.returncode, code, result.stderr)

    def test_a_start_that_ran_long_is_forgiven_the_ones_before(self):
        """The budget never recovered."""
        result = ronderun("-np", "1", "--restarts", "1", "--restart-window", "1", *shell(
            "sleep 1.2; [ $RONDE_RESTART_ATTEMPT = 2 ] || exit 3"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.count("restart 1 of 1 follows in 1 s\n"), 2, result.stderr)

    def test_every_start_sees_the_same_job(self):
        script = 'echo "$RONDE_RESTART_JOB"; [ $RONDE_RESTART_ATTEMPT = 1 ] || exit 3'
        seen = []
        for variables in ({}, {}, {"RONDE_RESTART_JOB": "mine"}):
            result = ronderun("-np", "2", "--restarts", "1", *shell(script), **variables)
            self.assertEqual(result.returncode, 0, result.stderr)
            seen.append(set(result.stdout.split()))
            self.assertEqual(len(seen[-1]), 1, result.stdout)
        self.assertNotEqual(seen[0], seen[1])
        self.assertRegex(seen[0].pop(), "^[0-9a-f]{16}$")
        self.assertEqual(seen[2], {"mine"})
        result = ronderun("-np", "1", *shell('echo "job $RONDE_RESTART_JOB"'))
        self.assertEqual(result.stdout, "job \n")

    @several_hosts
    def test_a_host_that_cannot_be_reached_is_left_out(self):
        start = 'sh -c \'[ $0 = good ] && exec "$@"; echo "no route to $0" >&2; exit 255\''
        result = ronderun("-H", "good:2,bad:2", "--start", start, "--restarts", "1", *shell("echo $RONDE_RANK/$RONDE_SIZE"))
        self.assertEqual((result.returncode, sorted(result.stdout.split())), (0, ["0/2", "1/2"]), result.stderr)
        self.assertEqual(result.stderr, "ronderun: host bad is left out from now on\n"
                         "ronderun: host bad cannot be reached: no route to bad: restart 1 of 1 follows in 1 s\n")

    def test_sigterm_in_the_pause(self):
        with tempfile.TemporaryFile(mode="w+") as file:
            # The third pause has 4 s.
            run = self.start("[ $RONDE_RESTART_ATTEMPT = 0 ]", "exit 3", "--restarts", "5", ranks=1, stderr=file)

            def said():
                file.seek(0)
                return file.read()

            late.until(lambda: "restart 3 of 5 follows in 4 s" in said(), DEADLINE, "the third pause")
            started = time.monotonic()
            run.terminate()
            self.check_ends(run, 143)
            late.at_most(time.monotonic() - started, 3.5, "the end in a pause of 4 s")
            self.assertIn("SIGTERM: the job is not started again", said())

    def test_an_unread_standard_error_delays_no_restart(self):
        with tempfile.TemporaryDirectory() as folder:
            run = self.start("[ $RONDE_RESTART_ATTEMPT = 1 ] && touch " + folder + "/again",
                             "[ $RONDE_RESTART_ATTEMPT = 1 ] || { head -c 100000 /dev/zero | tr '\\0' x >&2; exit 3; }",
                             "--restarts", "1", ranks=1)
            late.until(lambda: pathlib.Path(folder, "again").exists(), DEADLINE, "the second start")
            self.check_ends(run, 0)

    def test_a_folder_keeps_what_each_start_printed(self):
        with tempfile.TemporaryDirectory() as folder:
            result = ronderun("-np", "1", "--restarts", "1", "--output-dir", folder,
                              *shell(FAILS_ONCE + "; echo >&2 well"))
            self.assertEqual(result.returncode, 0, result.stderr)
            out, err = (pathlib.Path(folder, name).read_text() for name in ("rank.0.out", "rank.0.err"))
        date = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}"
        self.assertRegex(out, f"^attempt 0\nronderun: restart 1, {date}\nattempt 1\n$")
        self.assertRegex(err, f"^ronderun: job start, {date}\nronderun: restart 1, {date}\nwell\n$")

    def test_tags(self):
        result = ronderun("-np", "1", "--restarts", "1", "--tag", *shell(FAILS_ONCE))
        self.assertEqual((result.returncode, result.stdout),
                         (0, "[0] attempt 0\n[0] attempt 1\n"), result.stderr)

    def test_without_restarts_the_ranks_see_no_attempt(self):
        result = ronderun("-np", "1", *shell("echo ${RONDE_RESTART_ATTEMPT-none}"))
        self.assertEqual(result.stdout, "none\n")


if __name__ == "__main__":
    main(FourAtOnce)
