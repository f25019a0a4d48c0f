#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ronderun: exit codes, arguments, what is refused, what is printed, which ranks there are.

    ronderun_test.py <ronderun> [unittest's arguments]

The ranks are small shell commands, so that nothing but the launcher is tested.
"""

import hashlib
import os
import pathlib
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

from jobs import DEADLINE, ELSEWHERE, RONDERUN, SOON, START, environment, late, main, ronderun, several_hosts, shell

# What comes before each start in a file of --output-dir.
JOB_START = r"ronderun: job start, \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}\n"

# What an agent says first.
MARK = b"\nthis is an agent of ronderun\n"


class ExitCodes(unittest.TestCase):
    def check_code(self, expected, script, *options):
        result = ronderun("-np", "2", *options, *shell(script))
        self.assertEqual(result.returncode, expected, result.stderr)
        return result

    def test_success_says_nothing(self):
        result = self.check_code(0, "exit 0")
        self.assertEqual((result.stdout, result.stderr), ("", ""))

    def test_first_rank_that_failed(self):
        result = self.check_code(3, '[ $RONDE_RANK = 1 ] && exit 3; sleep 30; exit 5')
        self.assertIn("exit code 3", result.stderr)

    def test_killed_rank(self):
        result = self.check_code(137, '[ $RONDE_RANK = 1 ] && kill -KILL $$; sleep 30')
        self.assertIn("SIGKILL", result.stderr)

    def test_crashed_rank(self):
        self.check_code(139, '[ $RONDE_RANK = 0 ] && kill -SEGV $$; sleep 30')

    def test_large_code(self):
        self.check_code(200, "exit 200")

    def test_the_programs_words_come_before_one_line_of_ours(self):
        result = self.check_code(
            4, '[ $RONDE_RANK = 1 ] || sleep 30; echo "the data is missing" >&2; exit 4')
        lines = result.stderr.splitlines()
        self.assertEqual(lines[0], "the data is missing")
        self.assertEqual(len(lines), 2, result.stderr)

    def test_verbose(self):
        result = self.check_code(4, "exit 4", "--verbose")
        self.assertIn(": ranks 0 to 1: bash -c 'exit 4'\n", result.stderr)
        self.assertIn("the kernel places 2 ranks on the ", result.stderr)


class LastLine(unittest.TestCase):
    """which rank failed, and where; why nothing started; `| head`."""

    def check(self, code, words, *arguments):
        result = ronderun(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        late.at_most(result.seconds, SOON, "the end")
        for word in words:
            self.assertIn(word, result.stderr)

    def test_rank_and_host(self):
        one_fails = shell('[ $RONDE_RANK = 1 ] && exit 7; sleep 30')
        one_is_killed = shell('[ $RONDE_RANK = 1 ] && kill -KILL $$; sleep 30')
        host = f"rank 1 on host {os.uname().nodename} "
        for where in ([], ["-H", "localhost:2"], ELSEWHERE):
            self.check(7, [host + "ended with exit code 7"], "-np", "2", *where, *one_fails)
            self.check(137, [host + "was killed by SIGKILL"], "-np", "2", *where, *one_is_killed)

    @several_hosts
    def test_secret(self):
        """Ranks on several hosts get a secret of 64 digits, which no command line has; the user's own goes before it."""
        hosts = ("-H", "localhost:1,elsewhere:1", *START)
        said = ronderun(*hosts, *shell('echo "$RONDE_JOB_SECRET"; cat /proc/[0-9]*/cmdline 2>/dev/null; echo')).stdout
        made, = {line for line in said.splitlines() if len(line) == 64 and line.isalnum()}
        self.assertEqual(said.count(made), 2, "a command line has it")
        own = "a secret of the user's own"
        done = ronderun(*hosts, *shell('echo "$RONDE_JOB_SECRET"'), RONDE_JOB_SECRET=own)
        self.assertEqual(done.stdout.splitlines(), [own, own], done.stderr)
        self.assertEqual(ronderun("-np", "1", "sh", "-c", 'echo "<$RONDE_JOB_SECRET>"').stdout, "<>\n")

    def test_unknown_host(self):
        result = ronderun("-np", "2", "-H", "no-such-host-of-ronde:2", "true")
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn("host no-such-host-of-ronde cannot be reached: ssh", result.stderr)

    def test_what_starts_an_agent_may_print(self):
        start = 'sh -c \'echo "Welcome to $0"; echo warning >&2; exec "$@"\''
        result = ronderun("-H", "elsewhere:1", "--start", start, "echo", "x")
        self.assertEqual((result.returncode, result.stdout), (0, "x\n"), result.stderr)

    def test_no_agent(self):
        for start, words in (("sh -c 'echo Welcome; echo no route >&2; exit 9'", "host far cannot be reached: no route"),
                             ("/not/there", "host far cannot be reached: /not/there: No such file or directory")):
            self.check(1, [words], "-H", "far:2", "--start", start, "true")
        self.check(1, ["host elsewhere: there is no folder /nope there"], *ELSEWHERE, "--wdir", "/nope", "true")

    def test_an_agent_of_another_version(self):
        def text(word):
            return struct.pack("<I", len(word)) + word

        hello = b"\1" + text(b"0.0.9") + text(b"far") + text(b"far") + struct.pack("<q", 1)
        agent = f"import os; os.write(1, {b'oh' + MARK + struct.pack('<I', len(hello)) + hello}); os.read(0, 1)"
        self.check(1, ["host far has Ronde 0.0.9, and this is ", "install the same on every host"], "-H", "far:2",
                   "--start", shlex.join([sys.executable, "-c", agent]), "true")

    def test_too_few_slots(self):
        self.check(2, ["write -H localhost:4"], "-np", "4", "-H", "localhost:2", "true")

    def test_a_reader_that_has_enough(self):
        for options in ([], ["--tag"]):
            run = late.run(["bash", "-c", '"$@" | head -n 2; exit "${PIPESTATUS[0]}"', "-", RONDERUN, "-np", "2",
                            *options, *shell("while :; do echo y; done")], DEADLINE, env=environment())
            self.assertEqual(run.returncode, 128 + signal.SIGPIPE, run.stderr)
            self.assertEqual(run.stdout.count("\n"), 2)
            self.assertEqual(run.stderr, "")


class Output(unittest.TestCase):
    """who printed what."""

    def test_a_hundred_megabytes_of_each_rank(self):
        numbers = "seq -f %0200.0f 500000"
        wanted = hashlib.sha256(subprocess.run(numbers.split(), stdout=subprocess.PIPE, check=True).stdout).digest()
        for ranks, options in ((1, ()), (1, ELSEWHERE), (2, ("--tag",)), (2, ("--tag", *ELSEWHERE))):
            with self.subTest(ranks=ranks, options=options), tempfile.TemporaryFile() as file:
                result = ronderun("-np", str(ranks), *options, *numbers.split(), stdout=file)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                file.seek(0)
                sums = [hashlib.sha256() for _ in range(ranks)]
                for line in file:
                    sums[line[1] - ord("0") if ranks > 1 else 0].update(line[4:] if ranks > 1 else line)
                self.assertEqual([one.digest() for one in sums], [wanted] * ranks)

    def test_what_cannot_be_written(self):
        with open("/dev/full", "wb") as full:
            for code, script in ((1, "echo x"), (3, "echo x; exit 3")):
                result = ronderun("-np", "2", *shell(script), stdout=full)
                self.assertEqual(result.returncode, code, result.stderr)
                self.assertEqual(result.stderr.count("the standard output could not be written (No space left"), 1)

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
            result = ronderun("-np", "2", "--output-dir", "new/er", *shell("echo $RONDE_RANK; echo oh >&2"),
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

    def test_a_rank_is_what_this_ronderun_says(self):
        """Python sees the first of two variables with one name, shells the last."""
        write = 'import os; os.write(1, "{RONDE_RANK} {RONDE_SIZE}\\n".format(**os.environ).encode())'
        show = (sys.executable, "-c", write)
        for line, variables in (((), {"RONDE_RANK": "7", "RONDE_SIZE": "1"}), (("-np", "1", RONDERUN), {})):
            result = ronderun(*line, "-np", "2", *show, **variables)
            self.assertEqual(sorted(result.stdout.splitlines()), ["0 2", "1 2"], result.stderr)

    def test_settings_and_variables_reach_every_rank(self):
        result = ronderun("-np", "2", "--algorithm", "ring", "-x", 'ODD=a;b "c"\'d\'=e\\f$g', *shell(
            'printf "%s|%s|%s\n" "$RONDE_ALGORITHM" "$RONDE_LOG_LEVEL" "$ODD"'), RONDE_LOG_LEVEL="info")
        self.assertEqual(result.stdout, 'ring|info|a;b "c"\'d\'=e\\f$g\n' * 2, result.stderr)

    def test_dry_run_starts_nothing_and_can_be_pasted(self):
        result = ronderun("--dry-run", "-np", "1", *shell('echo "it\'s $0"'), "fine")
        self.assertEqual(result.returncode, 0)
        self.assertNotIn("it's fine", result.stdout)
        host, words = result.stdout.split(": rank 0: ")
        self.assertEqual(host, os.uname().nodename)
        pasted = late.run(["sh", "-c", words], DEADLINE, env=environment())
        self.assertEqual(pasted.stdout, "it's fine\n", pasted.stderr)

    def test_more_ranks_than_cores(self):
        ranks = len(os.sched_getaffinity(0)) + 1
        result = ronderun("-np", str(ranks), *shell("echo here"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.split(), ["here"] * ranks)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertIn(f"{ranks} ranks on ", result.stderr)

    def test_every_byte_of_an_argument(self):
        words = ["a\nb", "'\"\\$x`", ":", "", "größe", "*", "~", " x ", "{host}", os.fsdecode(b"\xff")]
        for where in ([], ELSEWHERE):
            with tempfile.TemporaryFile() as file:
                ronderun("-np", "1", *where, "printf", "%s\\0", *words, stdout=file)
                file.seek(0)
                self.assertEqual(file.read(), b"".join(os.fsencode(word) + b"\0" for word in words))


class Input(unittest.TestCase):
    def test_rank_0_has_it(self):
        for where in ([], ELSEWHERE):
            with tempfile.TemporaryFile() as file:
                file.write(b"hello\n")
                file.seek(0)
                result = ronderun("-np", "2", *where, *shell("read line; echo $RONDE_RANK:$line"), stdin=file)
            self.assertEqual(sorted(result.stdout.split()), ["0:hello", "1:"])

    def test_all_of_it(self):
        sent = os.urandom(10_000_000)
        for options in (["--tag"], ["--output-dir", "out"], ELSEWHERE):
            with self.subTest(options), tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "sent").write_bytes(sent)
                with subprocess.Popen(["cat", "sent"], cwd=folder, stdout=subprocess.PIPE) as pipe:
                    result = ronderun("-np", "2", *options, *shell("cat >took.$RONDE_RANK"), cwd=folder, stdin=pipe.stdout)
                self.assertEqual(result.returncode, 0, result.stderr)
                took = [pathlib.Path(folder, f"took.{rank}").read_bytes() for rank in (0, 1)]
                self.assertTrue(took == [sent, b""])

    def test_more_than_the_rank_reads(self):
        with open("/dev/zero", "rb") as zero:
            self.assertEqual(ronderun("-np", "1", *shell("head -c 3000000 | wc -c"), stdin=zero).stdout, "3000000\n")


class Ranks(unittest.TestCase):
    """How many, where."""

    def check_ranks(self, wanted, *options, **variables):
        result = ronderun(*options, *shell("echo $RONDE_RANK/$RONDE_SIZE ${OF_AGENT-here}"), **variables)
        self.assertEqual(sorted(result.stdout.splitlines()), wanted, result.stderr)

    def test_as_many_as_slots(self):
        self.check_ranks(["0/3 here", "1/3 here", "2/3 here"], "-H", "localhost:3")
        one = str(min(os.sched_getaffinity(0)))
        done = late.run(["taskset", "-c", one, RONDERUN, *shell("echo $RONDE_SIZE")], DEADLINE, env=environment())
        self.assertEqual(done.stdout, "1\n", done.stderr)

    @several_hosts
    def test_hosts_of_a_batch_system(self):
        four = ["0/4 a1", "1/4 a1", "2/4 a1", "3/4 a2"]
        self.check_ranks(four, *START, SLURM_JOB_NODELIST="a[1-2]", SLURM_TASKS_PER_NODE="3,1")
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("a1\na1\na1\na2\n")
            file.flush()
            self.check_ranks(four, *START, PBS_NODEFILE=file.name)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("# of the MPI operator\na1 slots=3\na2 slots=1\n")
            file.flush()
            self.check_ranks(four, *START, "--hostfile", file.name)
            self.check_ranks(["0/1 here"], *START, "-H", "localhost", SLURM_JOB_NODELIST="a[1-2]")

    @unittest.skipUnless(len(os.sched_getaffinity(0)) > 1, "one core")
    def test_binding(self):
        cores = sorted(map(str, os.sched_getaffinity(0)))[:2]
        show = r"import os; os.write(1, ','.join(sorted(map(str, os.sched_getaffinity(0)))).encode() + b'\n')"
        for binding, wanted in (("core", cores), ("none", [",".join(cores)] * 2)):
            done = late.run(["taskset", "-c", ",".join(cores), RONDERUN, "-np", "2", "--bind-to", binding, sys.executable,
                             "-c", show], DEADLINE, env=environment())
            self.assertEqual(sorted(done.stdout.split()), wanted, done.stderr)


class Refusals(unittest.TestCase):
    def check(self, code, words, *arguments, **more):
        result = ronderun(*arguments, **more)
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_usage(self):
        self.check(2, ["no program to run"], "-np", "2")
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

    def test_what_needs_mpi(self):
        self.check(2, ["add it"], "-np", "2", "--mpi-args", "--mca x y", "true")
        self.check(2, ["auto, none, core or numa"], "-np", "2", "--bind-to", "socket", "true")


if __name__ == "__main__":
    main()
