#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ronderun with the real mpirun: exit codes, arguments, what is refused, what is printed.

    ronderun_test.py <ronderun> [unittest's arguments]

The ranks are small shell commands, so that nothing but the launcher is tested.
"""

import os
import pathlib
import shutil
import signal
import tempfile
import unittest

from jobs import DEADLINE, RONDERUN, environment, late, main, ronderun, shell

# What comes before each start in a file of --output-dir.
JOB_START = r"ronderun: job start, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}\n"


class ExitCodes(unittest.TestCase):
    def check_code(self, expected, script, *options):
        result = ronderun("-np", "2", *options, *shell(script))
        self.assertEqual(result.returncode, expected, result.stderr)
        return result

    def test_success_says_nothing(self):
        result = self.check_code(0, "exit 0")
        self.assertEqual((result.stdout, result.stderr), ("", ""))

    def test_first_rank_that_failed(self):
        result = self.check_code(3, '[ $OMPI_COMM_WORLD_RANK = 1 ] && exit 3; sleep 30; exit 5')
        self.assertIn("exit code 3", result.stderr)

    def test_killed_rank(self):
        result = self.check_code(137, '[ $OMPI_COMM_WORLD_RANK = 1 ] && kill -KILL $$; sleep 30')
        self.assertIn("SIGKILL", result.stderr)

    def test_crashed_rank(self):
        self.check_code(139, '[ $OMPI_COMM_WORLD_RANK = 0 ] && kill -SEGV $$; sleep 30')

    def test_large_code(self):
        self.check_code(200, "exit 200")

    def test_the_programs_words_come_before_one_line_of_ours(self):
        result = self.check_code(
            4, '[ $OMPI_COMM_WORLD_RANK = 1 ] || sleep 30; echo "the data is missing" >&2; exit 4')
        lines = result.stderr.splitlines()
        self.assertEqual(lines[0], "the data is missing")
        self.assertEqual(len(lines), 2, result.stderr)

    def test_verbose_lets_mpirun_explain(self):
        result = self.check_code(4, "exit 4", "--verbose")
        self.assertIn("ronderun: ", result.stderr)
        self.assertIn("non-zero", result.stderr)


class LastLine(unittest.TestCase):
    """which rank failed, and where; why nothing started; `| head`."""

    def check(self, code, words, *arguments):
        result = ronderun(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def check_named(self, code, words, *arguments):
        """mpirun itself leaves the name out in about three runs of ten: then ronderun has none to give."""
        for _ in range(10):
            result = ronderun(*arguments)
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            if words in result.stderr:
                return
            self.assertIn(f"exit code {code}", result.stderr)
        self.fail(f"none of 10 runs said: {words}")

    def test_rank_and_host(self):
        one_fails = shell('[ $OMPI_COMM_WORLD_RANK = 1 ] && exit 7; sleep 30')
        one_is_killed = shell('[ $OMPI_COMM_WORLD_RANK = 1 ] && kill -KILL $$; sleep 30')
        host = f"rank 1 on host {os.uname().nodename} "
        self.check_named(7, host + "ended with exit code 7", "-np", "2", *one_fails)
        self.check_named(7, host + "ended with exit code 7", "-np", "2", "-H", "localhost:2", *one_fails)
        self.check_named(137, host + "was killed by SIGKILL", "-np", "2", *one_is_killed)

    def test_secret(self):
        """Ranks on several hosts get a secret of 64 digits, which no command line has; the user's own goes before it."""
        show = shell('echo "$RONDE_JOB_SECRET"; tr "\\0" " " </proc/$PPID/cmdline; echo')
        lines = ronderun("-np", "2", "-H", "localhost:2", *show).stdout.splitlines()
        made = {line for line in lines if len(line) == 64}
        self.assertEqual(len(made), 1, lines)
        secret, = made
        self.assertEqual(sum(secret in line for line in lines), 2, "a command line has it")
        own = "a secret of the user's own"
        done = ronderun("-np", "2", "-H", "localhost:2", *shell('echo "$RONDE_JOB_SECRET"'), RONDE_JOB_SECRET=own)
        self.assertEqual(done.stdout.splitlines(), [own, own], done.stderr)
        self.assertEqual(ronderun("-np", "1", "sh", "-c", 'echo "<$RONDE_JOB_SECRET>"').stdout, "<>\n")

    def test_unknown_host(self):
        result = ronderun("-np", "2", "-H", "no-such-host-of-ronde:2", "true")
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        # Without ssh on this machine mpirun says something else.
        if shutil.which("ssh"):
            self.assertIn("host no-such-host-of-ronde cannot be reached", result.stderr)

    def test_too_few_slots(self):
        self.check(1, ["fewer slots than ranks", "--oversubscribe"], "-np", "4", "-H", "localhost:2", "true")

    def test_a_reader_that_has_enough(self):
        for options in ([], ["--tag"]):
            run = late.run(["bash", "-c", '"$@" | head -n 2; exit "${PIPESTATUS[0]}"', "-", RONDERUN, "-np", "2",
                            *options, *shell("while :; do echo y; done")], DEADLINE, env=environment())
            self.assertEqual(run.returncode, 128 + signal.SIGPIPE, run.stderr)
            self.assertEqual(run.stdout.count("\n"), 2)
            self.assertEqual(run.stderr, "")


class Output(unittest.TestCase):
    """who printed what."""

    def test_tags(self):
        result = ronderun("-np", "2", "--tag", *shell(
            'for i in 1 2 3; do printf "be"; sleep 0.05; echo "gun $i"; done; echo oh >&2; printf half; exit 4'))
        self.assertEqual(result.returncode, 4)
        wanted = [f"[{rank}] {line}" for rank in (0, 1) for line in ("begun 1", "begun 2", "begun 3", "half")]
        self.assertEqual(sorted(result.stdout.splitlines()), sorted(wanted))
        self.assertEqual(sorted(line for line in result.stderr.splitlines() if line.endswith("] oh")),
                         ["[0] oh", "[1] oh"])

    def test_every_tagged_line_is_whole(self):
        lines = 20000
        result = ronderun("-np", "2", "--tag", *shell(f"seq 1 {lines}"))
        for rank in (0, 1):
            mark = f"[{rank}] "
            mine = [line[len(mark):] for line in result.stdout.splitlines() if line.startswith(mark)]
            self.assertEqual(mine, [str(number) for number in range(1, lines + 1)])

    def test_tags_leave_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            ronderun("-np", "2", "--tag", *shell("echo x"), TMPDIR=folder)
            self.assertEqual([name for name in os.listdir(folder) if name.startswith("ronderun")], [])

    def test_a_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            result = ronderun("-np", "2", "--output-dir", "new/er", *shell("echo $OMPI_COMM_WORLD_RANK; echo oh >&2"),
                              cwd=folder)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
            files = {path.name: path.read_text() for path in pathlib.Path(folder, "new/er").iterdir()}
        self.assertEqual((files.pop("rank.0.out"), files.pop("rank.1.out")), ("0\n", "1\n"))
        self.assertEqual(sorted(files), ["rank.0.err", "rank.1.err"])
        for text in files.values():
            self.assertRegex(text, f"^{JOB_START}oh\n$")

    def test_a_folder_keeps_what_other_jobs_have_printed(self):
        """As that of a batch job that is queued again."""
        with tempfile.TemporaryDirectory() as folder:
            for word in ("first", "second"):
                result = ronderun("-np", "1", "--output-dir", folder, *shell(f"echo {word}; echo {word} >&2"))
                self.assertEqual((result.returncode, result.stderr), (0, ""))
            out, err = (pathlib.Path(folder, name).read_text() for name in ("rank.0.out", "rank.0.err"))
        self.assertRegex(out, f"^first\n{JOB_START}second\n$")
        self.assertRegex(err, f"^{JOB_START}first\n{JOB_START}second\n$")

    def test_a_folder_that_cannot_be(self):
        result = ronderun("-np", "2", "--output-dir", "/etc/passwd/x", "true")
        self.assertEqual((result.returncode, result.stderr.count("\n")), (2, 1), result.stderr)


class Arguments(unittest.TestCase):
    def test_the_programs_flags_are_its_own(self):
        result = ronderun("-np", "1", *shell('echo "$0" "$@"'), "--help", "-np", "7", "-x", "a b", "*",
                          "--dry-run", "--", "")
        self.assertEqual(result.stdout, "--help -np 7 -x a b * --dry-run -- \n")

    def test_settings_and_variables_reach_every_rank(self):
        result = ronderun("-np", "2", "--algorithm", "ring", "-x", 'ODD=a;b "c"\'d\'=e\\f$g', *shell(
            'printf "%s|%s|%s\n" "$RONDE_ALGORITHM" "$RONDE_LOG_LEVEL" "$ODD"'), RONDE_LOG_LEVEL="info")
        self.assertEqual(result.stdout, 'ring|info|a;b "c"\'d\'=e\\f$g\n' * 2, result.stderr)

    def test_dry_run_starts_nothing_and_can_be_pasted(self):
        result = ronderun("--dry-run", "-np", "1", *shell('echo "it\'s $0"'), "fine")
        self.assertEqual(result.returncode, 0)
        self.assertNotIn("it's fine", result.stdout)
        pasted = late.run(["sh", "-c", result.stdout], DEADLINE, env=environment())
        self.assertEqual(pasted.stdout, "it's fine\n", pasted.stderr)

    def test_more_ranks_than_cores(self):
        ranks = len(os.sched_getaffinity(0)) + 1
        result = ronderun("-np", str(ranks), *shell("echo here"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.split(), ["here"] * ranks)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(f"{ranks} ranks on ", result.stderr)

    def test_standard_input_reaches_rank_0(self):
        with tempfile.TemporaryFile() as file:
            file.write(b"hello\n")
            file.seek(0)
            result = ronderun("-np", "2", *shell("read line; echo $OMPI_COMM_WORLD_RANK:$line"),
                              stdin=file)
        self.assertEqual(sorted(result.stdout.split()), ["0:hello", "1:"])


class Refusals(unittest.TestCase):
    def check(self, code, words, *arguments, **more):
        result = ronderun(*arguments, **more)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_usage(self):
        self.check(2, ["-np N"], "true")
        self.check(2, ["--dry-run"], "--dryrun", "-np", "2", "true")
        self.check(2, ["-np 0"], "-np", "0", "true")

    def test_bad_setting_before_anything_starts(self):
        self.check(2, ["RONDE_ALGORITHM", "zigzag", "ring"], "-np", "2", "--algorithm", "zigzag", "true")
        self.check(2, ["RONDE_ALGORITHM", "zigzag"], "-np", "2", "true", RONDE_ALGORITHM="zigzag")

    def test_no_program(self):
        self.check(127, ["./not_there"], "-np", "2", "./not_there")

    def test_program_without_its_path(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "a_program_of_mine")
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
            self.check(127, ["did you mean ./a_program_of_mine"], "-np", "2", "a_program_of_mine",
                       cwd=folder)

    def test_not_executable(self):
        self.check(126, ["chmod"], "-np", "2", os.path.abspath(__file__) if not os.access(
            __file__, os.X_OK) else "/etc/passwd")
        self.check(126, ["/tmp"], "-np", "2", "/tmp")

    def test_no_mpirun(self):
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(shutil.which("bash"), folder + "/bash")
            self.check(127, ["openmpi-bin"], "-np", "2", "bash", PATH=folder)


if __name__ == "__main__":
    main()
