#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Signals to ronderun and its ranks: what the ranks hear of them, what is left behind.

    signals_test.py <ronderun> [unittest's arguments]
"""

import contextlib
import fcntl
import os
import pathlib
import pty
import signal
import subprocess
import tempfile
import termios
import time

from jobs import (DEADLINE, ELSEWHERE, RONDERUN, SOON, FourAtOnce, RunningJobs, children_of, environment, late, main,
                  processes_with, ronderun, shell)

# A rank that will not die of SIGTERM: how it prepares, and what it does then.
STUBBORN = ('trap "" TERM INT HUP', "while :; do sleep 1; done")
# Whoever waited for it would miss the deadline of these tests.
LONG_GRACE = ("--stop-grace", "600")


class Signals(RunningJobs):
    ALONE = ["test_ctrl_c_twice_on_a_terminal"]  # Python runs code between fork and exec

    def test_sigterm(self):
        run = self.start(":", "sleep 60")
        run.terminate()
        _, errors = self.check_ends(run, 143)
        self.assertIn("SIGTERM", errors)

    def test_sigint(self):
        run = self.start(":", "sleep 60")
        run.send_signal(signal.SIGINT)
        self.check_ends(run, 130)

    def test_stubborn_ranks(self):
        run = self.start(*STUBBORN, "--stop-grace", "0")
        run.terminate()
        self.check_ends(run, 143)

    def test_second_signal_kills(self):
        run = self.start(*STUBBORN)
        run.send_signal(signal.SIGINT)
        self.assertIn("SIGINT", run.stderr.readline())  # two that wait for ronderun would be one
        time.sleep(0.4)
        run.send_signal(signal.SIGINT)
        _, errors = self.check_ends(run, 130)
        self.assertIn("killing", errors)

    def test_ctrl_c_twice_on_a_terminal(self):
        terminal, inside = pty.openpty()
        try:
            run = self.start(*STUBBORN, stdin=inside,
                             preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
            os.write(terminal, b"\x03")
            time.sleep(0.4)
            os.write(terminal, b"\x03")
            self.check_ends(run, 130)
        finally:
            os.close(terminal)
            os.close(inside)

    def test_agent_killed(self):
        here = "the agent of this host, which has started the ranks here, was killed"
        for where, words in (((), here), (ELSEWHERE, "host elsewhere was lost: its agent has ended, or its line was cut")):
            run = self.start(*STUBBORN, *where)
            agent, = children_of(run.pid)
            if where:  # behind it, which waits for its end
                agent, = children_of(agent)
            os.kill(agent, signal.SIGKILL)
            _, errors = self.check_ends(run, 1, SOON)
            self.assertEqual(errors, f"ronderun: {words}\n")

    def test_ronderun_killed(self):
        for where in ((), ELSEWHERE):
            # Ranks that print, so that the agent writes where nobody reads.
            run = self.start(f"{STUBBORN[0]}; setsid sleep 60 & :", "sleep 0.5; while :; do echo y; done", *where)
            time.sleep(1)
            run.kill()
            late.finish(run, DEADLINE)
            late.until(lambda: not processes_with(self.mark), SOON, "the end of the ranks")

    def test_before_the_ranks_start(self):
        """The command that is to start an agent says nothing."""
        name, value = self.mark.split("=", 1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with tempfile.TemporaryDirectory() as folder:
                line = [RONDERUN, "-H", "elsewhere:1", "--start", f"sh -c 'touch {folder}/x; exec sleep 60'", "true"]
                run = subprocess.Popen(line, env=environment(**{name: value}), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.runs.append(run)
                late.until(lambda: os.listdir(folder), DEADLINE, "the command")  # pylint: disable=cell-var-from-loop
            run.send_signal(number)
            late.finish(run, SOON)
            self.assertEqual(run.returncode, -number if number == signal.SIGKILL else 128 + number)
            late.until(lambda: not processes_with(self.mark), SOON, "the end of the command")

    def test_children_that_were_there_before_are_left_alone(self):
        name, value = self.mark.split("=", 1)
        run = late.run(shell(f'sleep 61 & exec "{RONDERUN}" -np 1 bash -c "exit 9"'), DEADLINE,
                       env=environment(**{name: value}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.assertEqual(run.returncode, 9)
        self.assertEqual(len(processes_with(self.mark)), 1)


class Stopping(RunningJobs):
    """SIGTERM, after which a job may save and end by itself."""

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def log(self, what):
        return f"echo {what} >>{self.folder}/$RONDE_RANK"

    def logs(self):
        return {path.name: path.read_text().split() for path in self.folder.iterdir()}

    def forget_logs(self):
        for path in self.folder.iterdir():
            path.unlink()

    def start_saving_ranks(self, exit_code, *options):
        """Ranks that end a moment after SIGTERM; each logs the signals that it gets, and so does a child."""
        child = (f"bash -c 'trap \"echo child >>{self.folder}/child\" TERM; trap \"exit 0\" USR1; "
                 "while :; do sleep 0.05; done' >/dev/null 2>&1 &")
        prepare = f"{child} trap '{self.log('TERM')}' TERM; trap '{self.log('USR2')}' USR2"
        work = (f"while [ ! -s {self.folder}/$RONDE_RANK ]; do sleep 0.05; done; sleep 1.5; kill -USR1 $!; wait; "
                f"exit {exit_code}")
        return self.start(prepare, work, *options)

    def test_each_rank_has_it_once_and_the_job_ends_by_itself(self):
        for options in ((), ELSEWHERE):
            with self.subTest(options=options):
                run = self.start_saving_ranks(0, *options)
                run.terminate()
                _, errors = self.check_ends(run, 0)
                self.assertEqual(self.logs(), {"0": ["TERM"], "1": ["TERM"]})
                self.assertEqual(errors, "ronderun: SIGTERM: the ranks have 20 s to end\n")
                self.forget_logs()

    def test_the_jobs_own_exit_code(self):
        run = self.start_saving_ranks(5)
        run.terminate()
        _, errors = self.check_ends(run, 5)
        self.assertIn("exit code 5", errors)

    def test_a_rank_that_fails_in_the_grace_is_named_and_ends_it(self):
        run = self.start("trap '[ $RONDE_RANK = 0 ] || exit 5' TERM", "while :; do sleep 0.05; done", *LONG_GRACE)
        run.terminate()
        _, errors = self.check_ends(run, 5, SOON)
        self.assertIn("rank 1 on host", errors)

    def test_the_grace_is_there_after_the_first_that_has_saved(self):
        run = self.start("trap 'sleep 1; exit 75' TERM", "[ $RONDE_RANK = 0 ] && exit 75; while :; do sleep 0.05; done",
                         *LONG_GRACE)
        time.sleep(0.5)
        run.terminate()
        self.check_ends(run, 75)

    def test_one_request_that_arrives_twice_is_one(self):
        # As from `timeout`: to ronderun, and to its group at once; the pause keeps the two from being merged.
        for _ in range(5):
            run = self.start_saving_ranks(0)
            began = time.monotonic()
            run.terminate()
            time.sleep(0.02)
            os.killpg(run.pid, signal.SIGTERM)
            at_once = time.monotonic() - began < 0.1  # not on a machine that is busy elsewhere
            _, errors = late.finish(run, DEADLINE)
            logs = self.logs()
            if at_once and "killing" not in errors:  # ronderun may have been kept from the second for longer
                break
            self.forget_logs()
        self.assertNotIn("killing", errors)
        self.assertEqual(run.returncode, 0, errors)
        self.assertEqual(logs, {"0": ["TERM"], "1": ["TERM"]})

    def test_an_unread_standard_error_keeps_no_signal_back(self):
        """As of a log collector that has stopped reading."""
        fill = "head -c 1000000 /dev/zero | tr '\\0' x >&2 &"
        run = self.start(f"trap '{self.log('TERM')}; exit 0' TERM", f"{fill} while :; do sleep 0.05; done", ranks=1)
        time.sleep(1)  # the pipe is full by then
        run.terminate()
        late.until(self.logs, DEADLINE, "a rank to hear of it")
        self.check_ends(run, 0)

    def test_a_program_without_a_handler_dies_at_once(self):
        run = self.start(":", "exec sleep 600", *LONG_GRACE)
        run.terminate()
        _, errors = self.check_ends(run, 143)
        self.assertIn("the job was ended by SIGTERM", errors)

    def test_stubborn_ranks_are_ended_after_the_grace(self):
        run = self.start(*STUBBORN, "--stop-grace", "2")
        started = time.monotonic()
        run.terminate()
        _, errors = self.check_ends(run, 143)
        self.assertIn("did not end in 2 s", errors)
        self.assertGreaterEqual(time.monotonic() - started, 2)

    def test_a_second_sigterm_kills(self):
        run = self.start(*STUBBORN, *LONG_GRACE)
        run.terminate()
        self.assertIn("SIGTERM", run.stderr.readline())  # two that wait for ronderun would be one
        time.sleep(0.4)
        run.terminate()
        _, errors = self.check_ends(run, 143)
        self.assertIn("killing", errors)

    def test_sigint_has_no_grace(self):
        run = self.start(*STUBBORN, *LONG_GRACE)
        run.send_signal(signal.SIGINT)
        self.check_ends(run, 130)

    def test_other_signals_are_passed_on(self):
        for where in ((), ELSEWHERE):
            run = self.start("trap 'exit 6' USR1", "while :; do sleep 0.05; done", *where)
            run.send_signal(signal.SIGUSR1)
            self.check_ends(run, 6)

    def test_a_rank_that_fails_in_the_grace_may_be_heard_with_the_request(self):
        run = self.start("trap 'exit 5' TERM", "while :; do sleep 0.05; done")
        agent, = children_of(run.pid)
        run.send_signal(signal.SIGSTOP)
        run.terminate()
        for rank in children_of(agent):
            os.kill(rank, signal.SIGTERM)
        late.until(lambda: not children_of(agent), DEADLINE, "the end of the ranks")
        run.send_signal(signal.SIGCONT)
        _, errors = self.check_ends(run, 5)
        self.assertIn("SIGTERM: the ranks have", errors)

    def test_a_signal_to_every_process(self):
        for code in (75, 0, 5):
            with self.subTest(code=code):
                run = self.start(f"trap 'sleep 0.1; exit {code}' TERM", "while :; do sleep 0.05; done")
                for process in processes_with(self.mark):
                    with contextlib.suppress(ProcessLookupError):  # as the ranks' short sleeps
                        os.kill(process, signal.SIGTERM)
                self.check_ends(run, code)


class LeftBehind(RunningJobs):
    """Processes that a job leaves when it has ended."""

    LEAVE = ("setsid sleep 600 </dev/null >/dev/null 2>&1 & "
             "until read -r name </proc/$!/comm && [ $name = sleep ]; do :; done;")

    def run_job(self, script, *options):
        started = time.monotonic()
        name, value = self.mark.split("=", 1)
        result = ronderun("-np", "1", *options, *shell(f"{self.LEAVE} {script}"), **{name: value})
        self.assertEqual(processes_with(self.mark), [])
        return result, time.monotonic() - started

    def test_after_success_they_have_the_grace(self):
        result, lasted = self.run_job("exit 0", "--stop-grace", "2")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stderr, r"^ronderun: .* a process of it has not \(sleep\): it is killed in 2 s\n$")
        self.assertGreaterEqual(lasted, 2)

    def test_without_a_grace_they_have_none(self):
        result, _ = self.run_job("exit 0", "--stop-grace", "0")
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_after_a_failure_they_are_killed_at_once(self):
        result, _ = self.run_job("exit 3", *LONG_GRACE)
        self.assertEqual((result.returncode, result.stderr.count("\n")), (3, 1), result.stderr)

    def test_a_signal_ends_the_wait(self):
        run = self.start(self.LEAVE + " :", "exit 0", *LONG_GRACE, ranks=1)
        self.assertIn("killed in 600 s", run.stderr.readline())
        run.terminate()
        self.check_ends(run, 0)
        run = self.start(self.LEAVE + " :", "exit 75", *LONG_GRACE, "--restarts", "2", ranks=1)
        self.assertIn("killed in 600 s", run.stderr.readline())
        run.terminate()
        _, errors = self.check_ends(run, 75)
        self.assertNotIn("restart", errors)

    def test_after_a_stop_they_end_their_work(self):
        """As an upload of the last checkpoint."""
        for code in (0, 75):
            with self.subTest(code=code), tempfile.TemporaryDirectory() as folder:
                upload = f'setsid bash -c "sleep 2; touch {folder}/done" </dev/null >/dev/null 2>&1 &'
                run = self.start(f"trap '{upload} exit {code}' TERM", "while :; do sleep 0.05; done", ranks=1)
                run.terminate()
                self.check_ends(run, code)
                self.assertTrue(pathlib.Path(folder, "done").exists())


if __name__ == "__main__":
    main(FourAtOnce)
