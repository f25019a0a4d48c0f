#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples of launcher/CLUSTER.md, as they are: the batch script runs, with stand-ins for Slurm and the training.

    cluster_test.py <ronderun> [unittest's arguments]
"""

import configparser
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

from jobs import DEADLINE, RONDERUN, environment, late, main

PAGE = (pathlib.Path(__file__).resolve().parents[3] / "launcher" / "CLUSTER.md").read_text(encoding="utf-8")
# The ranks' program: says which job it is of, then ends with the code $CODE, after SIGTERM where there is one to wait for.
TRAINING = """#!/bin/bash
trap 'exit 75' TERM
echo "$RONDE_RESTART_JOB" >job.$RONDE_RANK
[ -n "$CODE" ] && exit $CODE
while :; do sleep 0.05; done
"""


def example(language, word=""):
    """The one example in this language that has this word."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    blocks = [block for block in blocks if word in block]
    assert len(blocks) == 1, (language, word)
    return blocks[0]


class BatchScript(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.write("script", example("sbatch", "ronderun"))
        self.write("train_fashion_mnist", TRAINING)
        self.write("scontrol", '#!/bin/sh\necho "$@" >>scontrol.log\n')
        (self.folder / "ronderun").symlink_to(RONDERUN)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)

    def start(self, **variables):
        path = f"{self.folder}:{os.environ['PATH']}"
        return subprocess.Popen([self.folder / "script"], cwd=self.folder, stdin=subprocess.DEVNULL, env=environment(
            PATH=path, SLURM_JOB_ID="7", SLURM_NTASKS="2", **variables))

    def check_ends(self, run, code):
        late.finish(run, DEADLINE)
        self.assertEqual(run.returncode, code)

    def requeued(self):
        log = self.folder / "scontrol.log"
        return log.read_text() if log.exists() else ""

    def test_slurm_stops_it_before_the_end(self):
        run = self.start()
        late.until(lambda: len(list(self.folder.glob("job.?"))) == 2, DEADLINE, "the ranks")
        run.send_signal(signal.SIGTERM)
        self.check_ends(run, 75)
        self.assertEqual(self.requeued(), "requeue 7\n")
        self.assertEqual((self.folder / "job.1").read_text(), "slurm-7\n")
        self.assertIn("job start", (self.folder / "logs" / "rank.0.err").read_text())

    def test_other_ends(self):
        for code in (0, 78):
            with self.subTest(code=code):
                self.check_ends(self.start(CODE=str(code)), code)
                self.assertEqual(self.requeued(), "")


class Others(unittest.TestCase):
    """They agree with the table of exit codes."""

    def codes(self, meaning):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines()
                if re.match(r"\| \d+[, 0-9]* \|", line)]
        return {int(code) for row in rows if row[2] == meaning for code in row[0].split(",") if "143" not in row[0]}

    def test_kubernetes(self):
        rules = re.findall(r"action: (\w+)\n +onExitCodes:\n.*\n +operator: In\n +values: \[(.*)\]",
                           example("yaml", "podFailurePolicy"))
        self.assertEqual({action: {int(code) for code in codes.split(",")} for action, codes in rules},
                         {"FailJob": self.codes("ends") - {0}, "Ignore": {75}})

    def test_indexed_job(self):
        """Its command makes a rank of a pod, and its meeting point is the name that the service gives pod 0."""
        job = example("yaml", "Indexed")
        command = re.search(r'command: \[sh, -c, "(.*)"\]', job)[1]
        variables = dict(re.findall(r"- name: (RONDE_\w+)\n +value: \"?([^\"\n]+)", job))
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "train_fashion_mnist"
            program.write_text("#!/bin/sh\nenv | grep ^RONDE_\n")
            program.chmod(0o755)
            said = subprocess.run(["sh", "-c", command], text=True, capture_output=True, check=True, env=environment(
                PATH=f"{folder}:{os.environ['PATH']}", JOB_COMPLETION_INDEX="3", **variables)).stdout.split()
        service, name = re.findall(r"^  name: (\w+)$", job, re.MULTILINE)
        self.assertIn("RONDE_RANK=3", said)
        self.assertIn(f"RONDE_SIZE={re.search(r'completions: (.*)', job)[1]}", said)
        self.assertIn(f"RONDE_MEET={name}-0.{service}:29500", said)
        self.assertEqual(re.search(r"subdomain: (.*)", job)[1], service)
        self.assertEqual(re.search(r"parallelism: (.*)", job)[1], re.search(r"completions: (.*)", job)[1])

    def test_systemd(self):
        unit = configparser.ConfigParser(interpolation=None)
        unit.optionxform = str
        unit.read_string(example("ini"))
        service = unit["Service"]
        self.assertEqual(service["KillMode"], "mixed")
        self.assertEqual(service["RestartForceExitStatus"], "75")
        self.assertEqual({int(code) for code in service["RestartPreventExitStatus"].split()}, self.codes("ends") - {0})


if __name__ == "__main__":
    main()
