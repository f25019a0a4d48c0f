#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ronderun with the real mpirun: signals, what the ranks hear of them, what is left behind.

    signals_test.py <ronderun> [unittest's arguments]
"""

import contextlib
import fcntl
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import tempfile
import termios
import time

from jobs import (DEADLINE, RONDERUN, FourAtOnce, RunningJobs, children_of, environment, late, main, processes_with,
                  ronderun, shell)

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
        time.sleep(0.4)
        run.send_signal(signal.SIGINT)
        _, errors = self.check_ends(run, 130)
        self.assertIn("killing", errors)

    def test_ctrl_c_twice_on_a_terminal(self):
        # The terminal signals mpirun as well; on a second Ctrl-C mpirun gives up on its ranks.
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

    def test_mpirun_killed(self):
        run = self.start(*STUBBORN)
        for process in children_of(run.pid):
            os.kill(process, signal.SIGKILL)
        self.check_ends(run, 137)

    def test_ronderun_killed(self):
        run = self.start(":", "sleep 60")
        run.kill()
        late.finish(run, DEADLINE)
        late.until(lambda: not processes_with(self.mark), DEADLINE, "the end of the ranks")

    def test_children_that_were_there_before_are_left_alone(self):
        name, value = self.mark.split("=", 1)
        run = late.run(shell(f'sleep 61 & exec "{RONDERUN}" -np 1 bash -c "exit 9"'), DEADLINE,
                       env=environment(**{name: value}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.assertEqual(run.returncode, 9)
        self.assertEqual(len(processes_with(self.mark)), 1)


class Stopping(RunningJobs):
    """SIGTERM, after which a job may save and end by itself."""

    # A script that a child of another thread has still open for writing could not be started.
    ALONE = ["test_an_mpirun_behind_a_script", "test_signals_pass_a_script", "test_a_signal_to_every_process",
             "test_a_script_that_has_ended_before_ronderun_looks",
             "test_neither_a_rank_nor_mpirun", "test_an_mpirun_without_ranks_here", "test_ranks_on_another_host_alone"]

    def setUp(self):
        super().setUp()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def log(self, what):
        return f"echo {what} >>{self.folder}/$OMPI_COMM_WORLD_RANK"

    def logs(self):
        return {path.name: path.read_text().split() for path in self.folder.iterdir()}

    def forget_logs(self):
        for path in self.folder.iterdir():
            path.unlink()

    def start_saving_ranks(self, exit_code, *options):
        """Ranks that end a moment after SIGTERM; each logs the signals that it gets, and so does a child.

        mpirun would wait for a child that has a rank's output."""
        child = f"bash -c 'trap \"echo child >>{self.folder}/child\" TERM; while kill -0 $PPID; do sleep 0.05; done' >/dev/null 2>&1 &"
        prepare = f"{child} trap '{self.log('TERM')}' TERM; trap '{self.log('USR2')}' USR2"
        work = f'while [ ! -s {self.folder}/$OMPI_COMM_WORLD_RANK ]; do sleep 0.05; done; sleep 1.5; exit {exit_code}'
        return self.start(prepare, work, *options)

    def test_each_rank_has_it_once_and_the_job_ends_by_itself(self):
        for options in ([], ["-H", "localhost:2"]):  # the second has a shell before the program
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
            if at_once:
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

    def test_ranks_on_another_host_alone(self):
        # The other host is this machine again: mpirun reaches it through the agent, as through ssh.
        agent = self.folder / "agent"
        # Its ranks are not below mpirun, as those of another host.
        agent.write_text('#!/bin/sh\nshift\nsh -c "$*" &\n')
        agent.chmod(0o755)
        run = self.start_saving_ranks(0, "-H", "elsewhere:2", "--mpi-args", f"--mca plm_rsh_agent {agent}")
        run.terminate()
        _, errors = self.check_ends(run, 0)
        agent.unlink()
        self.assertEqual(self.logs(), {"0": ["USR2"], "1": ["USR2"]})
        self.assertNotIn("mpirun", errors)

    def path_with_a_script(self, script):
        """A PATH where mpirun is a script."""
        mpirun = self.folder / "mpirun"
        mpirun.write_text(script)
        mpirun.chmod(0o755)
        self.addCleanup(mpirun.unlink, missing_ok=True)
        return {"PATH": f"{self.folder}:{os.environ['PATH']}"}

    def start_behind_a_script(self, prepare, work, **how):
        """With an mpirun as module systems and conda have it."""
        real = shutil.which("mpirun")
        return self.start(prepare, work, variables=self.path_with_a_script(f'#!/bin/bash\n{real} "$@"\n'), **how)

    def test_an_mpirun_behind_a_script(self):
        """The ranks were not found, and all was killed at once."""
        run = self.start_behind_a_script("trap 'sleep 1.5; exit 75' TERM", "while :; do sleep 0.05; done")
        run.terminate()
        _, errors = self.check_ends(run, 75)
        self.assertIn("has saved its state", errors)

    def test_signals_pass_a_script(self):
        run = self.start_behind_a_script("trap 'exit 6' USR1", "while :; do sleep 0.05; done")
        run.send_signal(signal.SIGUSR1)
        self.check_ends(run, 6)

    def signal_all(self):
        for process in processes_with(self.mark):
            with contextlib.suppress(ProcessLookupError):  # as the ranks' short sleeps
                os.kill(process, signal.SIGTERM)

    def test_a_signal_to_every_process(self):
        """Mpirun ends a job within a second then, and has exit code 1 whatever the ranks say."""
        for code, start in ((75, self.start), (0, self.start), (75, self.start_behind_a_script)):
            with self.subTest(code=code, start=start.__name__):
                run = start(f"trap 'sleep 0.1; exit {code}' TERM", "while :; do sleep 0.05; done")
                self.signal_all()
                self.check_ends(run, code)
        run = self.start("trap 'sleep 0.2; exit 5' TERM", "while :; do sleep 0.05; done")
        self.signal_all()
        self.check_ends(run, 1)

    def test_a_script_that_has_ended_before_ronderun_looks(self):
        """As where every process is signalled, and ronderun gets no core for a while."""
        run = self.start_behind_a_script("trap 'sleep 0.5; exit 75' TERM", "while :; do sleep 0.05; done")
        script, = children_of(run.pid)
        run.send_signal(signal.SIGSTOP)
        run.terminate()
        os.kill(script, signal.SIGTERM)
        late.until(lambda: pathlib.Path(f"/proc/{script}/stat").read_text().rpartition(")")[2].split()[0] == "Z",
                   DEADLINE, "the end of the script")
        run.send_signal(signal.SIGCONT)
        _, errors = self.check_ends(run, 75)
        self.assertNotIn("there is neither", errors)

    def test_neither_a_rank_nor_mpirun(self):
        run = self.start("", "", ranks=1, variables=self.path_with_a_script(
            "#!/bin/bash\ntrap 'exit 4' TERM\necho ready\nwhile :; do sleep 0.05; done\n"))
        run.terminate()
        _, errors = self.check_ends(run, 4)
        self.assertRegex(errors, r"^ronderun: there is neither a rank nor mpirun below process \d+ \(mpirun\): ")

    def test_an_mpirun_without_ranks_here(self):
        for name, script in (("exits", "exit 0"), ("goes on", ":")):
            with self.subTest(name):
                mpirun = self.folder / "mpirun"
                mpirun.write_text(f"#!/bin/bash\ntrap 'echo USR2 >>{self.folder}/mpirun.log; {script}' USR2\n"
                                  f"trap 'echo TERM >>{self.folder}/mpirun.log; exit 1' TERM\n"
                                  "echo ready\nwhile :; do sleep 0.05; done\n")
                mpirun.chmod(0o755)
                run = self.start("", "", "--stop-grace", "1", ranks=1,
                                 variables={"PATH": f"{self.folder}:{os.environ['PATH']}"})
                run.terminate()
                ends = name == "exits"
                self.check_ends(run, 0 if ends else 143)
                self.assertEqual(self.logs().pop("mpirun.log"), ["USR2"] if ends else ["USR2", "TERM"])
                (self.folder / "mpirun.log").unlink()


class LeftBehind(RunningJobs):
    """Processes that a job leaves when it has ended."""

    LEAVE = "setsid sleep 600 </dev/null >/dev/null 2>&1 &"

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
