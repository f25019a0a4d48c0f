# SPDX-License-Identifier: Apache-2.0
"""How the end-to-end checks start programs, and what they expect of every one of them."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position
from plain_data import DATA, unpacked  # noqa: E402,F401  pylint: disable=wrong-import-position,unused-import

TRAIN = "train_fashion_mnist"
# A bad start must be reported "within seconds". Generous for a loaded machine, below the deadline of a start.
ERROR_SECONDS = 45
RUN_SECONDS = 280
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def start(line, seconds=RUN_SECONDS, environment=None):
    """Runs a command line to its end, and returns what it said, its exit code and its seconds."""
    done = late.run(line, seconds, env={**os.environ, **ROOT, **(environment or {})})
    if done.returncode != 0:
        late.unless_started(done.stderr, done.returncode)
    return done


class Programs:
    """Starts the programs."""

    def __init__(self, folder, mpirun):
        self.folder = pathlib.Path(folder)
        self.mpirun = mpirun

    def path(self, name):
        return str(self.folder / name)

    def run(self, name, *flags, ranks=1, seconds=RUN_SECONDS, environment=None):
        """One program on `ranks` ranks; 1: without mpirun."""
        if ranks == 1:
            return start([self.path(name), *flags], seconds, environment)
        return self.run_parts(ranks, [[self.path(name), *flags]], seconds, environment)

    def run_parts(self, ranks, commands, seconds=RUN_SECONDS, environment=None):
        """One mpirun whose ranks are spread evenly over several command lines."""
        line = [self.mpirun, "--bind-to", "none", "--oversubscribe"]
        for i, command in enumerate(commands):
            line += ([":"] if i else []) + ["-np", str(ranks // len(commands)), *command]
        return start(line, seconds, environment)


def expect(condition, done, what):
    """Fails with everything that the program said."""
    if not condition:
        raise AssertionError(f"{what}\ncommand: {' '.join(done.args)}\nexit code: {done.returncode}\n"
                             f"--- stdout\n{done.stdout}--- stderr\n{done.stderr}")


def result(done):
    """The key=value pairs of the last line."""
    expect(done.returncode == 0, done, "the program failed")
    return dict(pair.split("=", 1) for pair in done.stdout.splitlines()[-1].split())


def expect_refused(done, *parts, ours=TRAIN + ": ", longest=400):
    """A short message of ours with all the parts in one line, soon, and a non-zero exit code."""
    expect(done.returncode not in (0, 124, 134, 139), done, "expected an orderly failure")
    late.at_most(done.seconds, ERROR_SECONDS, "the failure")
    # mpirun adds lines of its own.
    lines = [line for line in done.stderr.splitlines() if line.startswith(ours)]
    expect(lines, done, "no message")
    for line in lines:
        expect(all(part in line for part in parts), done, f"expected {parts} in: {line}")
        expect(len(line) < longest, done, "the message is long")
    return lines
