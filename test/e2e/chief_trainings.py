# SPDX-License-Identifier: Apache-2.0
"""Trainings with a directory of the chief's, which a check may end in any way and start again."""
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "fault"))

import job as jobs  # pylint: disable=wrong-import-position
from programs import TRAIN, Programs, expect, late, unpacked  # pylint: disable=wrong-import-position

STEPS = 1000
# How a training ends.
FAILED, STOPPED, CONFIGURATION = 1, 75, 78


def mlp(steps=STEPS):
    """An epoch has 469 steps."""
    return ["--optimizer=adam", f"--epochs={steps // 469 + 1}", f"--steps={steps}", "--test-images=500"]


def cnn(steps):
    """A step of 64 images takes 70 ms: the last dozen gives a test the time to find a rank and kill it."""
    return ["--model=cnn", "--batch-norm=local", "--optimizer=adam", "--epochs=1", f"--steps={steps}",
            "--global-batch=64", "--test-images=500"]


class Chief(Programs):
    """Starts trainings. `faulty_disk` is a library (chief/faulty_disk.cc)."""

    def __init__(self, folder, mpirun, ronderun, faulty_disk):
        super().__init__(folder, mpirun)
        self.ronderun = ronderun
        self.faulty_disk = faulty_disk
        self.data = "--data=" + unpacked(folder)
        self.home = self.logdir = tempfile.mkdtemp(prefix="ronde_chief_")

    def fresh(self):
        """A logdir of its own for another case."""
        self.logdir = tempfile.mkdtemp(dir=self.home)
        return f"--logdir={self.logdir}"

    def file(self, name):
        return pathlib.Path(self.logdir) / name

    def saved(self):
        """The steps of which there are checkpoints."""
        names = [path.name[len("step-"):] for path in pathlib.Path(self.logdir).glob("step-*")]
        return sorted(int(name) for name in names if name.isdigit())

    def run(self, name, *flags, **how):
        """With the unpacked data, if the program reads any: most trainings here are started again and again."""
        data = [self.data] if name in (TRAIN, "classify_two_classes") else []
        return super().run(name, *data, *flags, **how)

    def begin(self, flags, ranks=2, starter=None, environment=None, says_steps=True):
        """A training that goes on beside this test."""
        starts = [starter or self.mpirun, *([] if starter else ["--bind-to", "none", "--oversubscribe"])]
        line = [*starts, "-np", str(ranks)] if ranks > 1 else []
        says = ["--log-every=1"] if says_steps else []
        return Running([*line, self.path(TRAIN), self.data, *flags, *says], environment)

    def faults(self, **settings):
        """The environment of a training whose logdir has faults."""
        names = {f"FAULTY_DISK_{name.upper()}": str(value) for name, value in settings.items()}
        return {"LD_PRELOAD": self.faulty_disk, "FAULTY_DISK_BELOW": self.logdir, **names}


class Running(jobs.Job):
    """A training, however it was started."""

    def __init__(self, line, environment=None):  # pylint: disable=super-init-not-called
        self.begin(line, environment)

    def steps(self):
        """The steps that were said."""
        return [int(line.split()[1].rstrip(":")) for line in self.output().splitlines()
                if line.startswith("step ") and line.endswith(tuple("0123456789"))]

    def wait_for_step(self, step):
        self.wait_until(lambda: (self.steps() or [0])[-1] >= step, 120, f"step {step}")

    def signal_rank(self, rank, number, program=TRAIN):
        os.kill(self.wait_until(lambda: self.find_rank(rank, program), 10, f"rank {rank}"), number)

    def end_with(self, code, *parts, seconds=60):
        """Waits for the end, which must have this code and have said all of these parts. Returns what was said."""
        output = self.end(seconds, f"it should end with {code}")
        missing = [part for part in parts if part not in output]
        if self.process.returncode != code or missing:
            sys.exit(f"{output}\nexit code {self.process.returncode}, expected {code}; not said: {missing}")
        return output

    def resumed_at(self):
        return resumed_at(self.output())


def resumed_at(text):
    """The step at which a training went on, 0: it began anew."""
    for line in text.splitlines():
        if line.startswith("resumed at step "):
            return int(line.split()[3])
    return 0


def stopped_after(text):
    return int(text.split("stopped after step ")[1].split(",")[0])


def result_values(text):
    """The pairs of the line that a finished training says; None: it has not said any."""
    lines = [line[line.index("ranks="):] for line in text.splitlines() if "param_hash=" in line]
    return dict(pair.split("=", 1) for pair in lines[-1].split()) if lines else None


def final(chief, flags, ranks=2, seconds=280, environment=None):
    """A training that must come to its end."""
    done = chief.run(TRAIN, *flags, ranks=ranks, seconds=seconds, environment=environment)
    expect(done.returncode == 0, done, "the program failed")
    return done, result_values(done.stdout)


def expect_rest(chief, flags, begin, expected, steps=STEPS, **how):
    """The training must go on at this step and end as if nothing had happened."""
    done, values = final(chief, flags, **how)
    expect(resumed_at(done.stdout) == begin, done, f"expected to go on at step {begin}")
    expect(int(values["steps"]) == steps - begin, done, "the steps that were left")
    expect(values["param_hash"] == expected["param_hash"], done, f"expected {expected}")
    return done


@contextlib.contextmanager
def small_disk(home, megabytes):
    """A file system of its own."""
    if os.geteuid() != 0:
        print("this check mounts a small file system: it needs root")
        sys.exit(late.SKIPPED)
    small = pathlib.Path(tempfile.mkdtemp(dir=home))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(small)], check=True)
    try:
        yield small
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def resize(disk, megabytes):
    subprocess.run(["mount", "-o", f"remount,size={megabytes}m", str(disk)], check=True)


def run_check(checks):
    """The main program of a script of checks: CHECK, and what a Chief takes."""
    chief = Chief(*sys.argv[2:6])

    def check():
        try:
            checks["check_" + sys.argv[1]](chief)
        finally:
            subprocess.run(["rm", "-rf", chief.home], check=False)

    late.end(check)
