#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A soak of the chief's directory: one small training after another on a disk of 2 MB, whose starts are killed,
stopped, left without space, and find files that are damaged or may not be read, by chance. Each is started again, as a user
or a batch system would, until it has finished.

What must hold: a training that ends with 0 has the undisturbed result, and its weights are on the disk; one that does
not says why; the next start goes on from the newest checkpoint that is whole.

usage: chief_soak.py FOLDER_OF_PROGRAMS MPIRUN RONDERUN FAULTY_DISK [SEED [STARTS]]
"""
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time

from chief_trainings import (CONFIGURATION, FAILED, STOPPED, Chief, Running, result_values, resumed_at,
                             small_disk, stopped_after)
from programs import TRAIN, late

STARTS = 200
STEPS = 1200
# A checkpoint of plain SGD has 0.4 MB. Two ranks have the bits of one with two micro-batches.
FLAGS = ["--optimizer=sgd", "--momentum=0", "--epochs=3", f"--steps={STEPS}", "--test-images=500", "--save-seconds=0",
         "--save-steps=20", "--keep=2", "--save-timeout=60"]
# How a start is begun, and what happens to it, with weights.
STARTERS = {"alone": 5, "mpirun": 3, "ronderun": 2}
STROKES = {"nothing": 1, "kill of a rank": 4, "kill of all": 4, "stop": 3, "stop of the launcher": 2, "full disk": 3,
           "unreadable file": 2, "damaged file": 3}
FAILURES = {"full disk": "No space left on device", "unreadable file": "Permission denied", "kill of a rank": " died"}


class Wrong(Exception):
    """What must hold does not."""


def pick(draw, weights):
    return draw.choices(list(weights), list(weights.values()))[0]


class Soak:  # pylint: disable=too-many-instance-attributes
    """`disk` is where the trainings live, one at a time."""

    def __init__(self, chief, disk, seed):
        self.chief = chief
        self.draw = random.Random(seed)
        self.counts = collections.Counter()
        chief.logdir = chief.home + "/undisturbed"
        self.seconds = {}
        for starter in STARTERS:
            shutil.rmtree(chief.logdir, ignore_errors=True)
            began = time.monotonic()
            running = self.begin(starter, ["--restore=auto"], {})
            running.end_with(0)
            self.seconds[starter] = time.monotonic() - began
            self.expected = result_values(running.output())["param_hash"]
        self.weights = self.tensors(STEPS).read_bytes()
        chief.logdir = str(disk)
        self.jobs = 0
        self.begin_training()

    def begin_training(self):
        """In an empty directory, or over what the one before has left there."""
        self.jobs += 1
        self.damaged = set()
        self.never = self.draw.random() < 0.5
        if not self.never:
            self.clear("*")
        self.clear("events.out.tfevents.*")
        self.clear("metrics*.jsonl")

    def clear(self, pattern):
        for path in pathlib.Path(self.chief.logdir).glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()  # pylint: disable=expression-not-assigned

    def tensors(self, step):
        return self.chief.file(f"step-{step}") / "tensors.safetensors"

    def begin(self, starter, flags, environment):
        line = {"alone": [], "mpirun": [self.chief.mpirun, "--bind-to", "none", "--oversubscribe", "-np", "2"],
                "ronderun": [self.chief.ronderun, "-np", "2"]}[starter]
        parts = ["--accumulate=2"] if starter == "alone" else []
        return Running([*line, self.chief.path(TRAIN), *FLAGS, f"--logdir={self.chief.logdir}", *parts, *flags],
                       environment)

    # ---- what is on the disk ----

    def training(self):
        """What training.json says."""
        try:
            return json.loads(self.chief.file("training.json").read_text())
        except FileNotFoundError:
            return {"training": "", "job": ""}

    def inode(self, step):
        return self.chief.file(f"step-{step}").stat().st_ino

    def newest(self):
        """From which step a start must go on; 0: none. Steps that were damaged here count if nothing else is there."""
        record = self.training()
        if self.never and record["job"] != str(self.jobs):
            return 0
        steps = []
        for step in self.chief.saved():
            if self.inode(step) in self.damaged:
                continue
            state = json.loads((self.chief.file(f"step-{step}") / "state.json").read_text())
            if state.get("training", "") == record["training"]:
                steps.append(step)
        return max(steps, default=0)

    def damage(self):
        """The newest checkpoint, in one of several ways. Whether there was one."""
        step = self.newest()
        if step == 0:
            return False
        state = self.chief.file(f"step-{step}") / "state.json"
        tensors = self.tensors(step)
        how = self.draw.randrange(4)
        if how == 0:
            os.truncate(tensors, self.draw.randrange(tensors.stat().st_size))
        elif how == 1:
            place = self.draw.randrange(tensors.stat().st_size)
            with open(tensors, "r+b") as file:
                file.seek(place)
                byte = file.read(1)[0]
                file.seek(place)
                file.write(bytes([byte ^ 1 << self.draw.randrange(8)]))
        elif how == 2:
            os.truncate(state, self.draw.randrange(state.stat().st_size - 2))
        else:
            self.draw.choice([state, tensors]).unlink()
        self.damaged.add(self.inode(step))
        return True

    # ---- one start ----

    def start(self, stroke):
        """Begins, strikes, waits, and judges."""
        starter = pick(self.draw, {**STARTERS, "ronderun": 0} if self.never else STARTERS)
        flags, environment = [], {}
        if self.never:
            flags, environment = ["--restore=never"], {"RONDE_RESTART_JOB": str(self.jobs)}
        if stroke == "damaged file" and not self.damage():
            stroke = "kill of all"
        newest = self.newest()
        if stroke == "unreadable file" and newest == 0:
            stroke = "full disk"
        if stroke == "unreadable file":
            starter = "alone"
            file = self.draw.choice(["state.json", "tensors.safetensors"])
            environment.update(self.chief.faults(closed=self.chief.file(f"step-{newest}") / file))
        self.counts["starts"] += 1
        self.counts[stroke] += 1
        before = self.chief.saved()
        none_whole = bool(before) and not self.never and all(self.inode(step) in self.damaged for step in before)
        running = self.begin(starter, flags, environment)
        try:
            stroke = self.strike(running, starter, stroke)
            late.finish(running.process, 120, f"start {self.counts['starts']}, {stroke}")
        except AssertionError:
            raise Wrong(f"it does not end\n{running.output()}") from None
        finally:
            self.clear("filler")
            if running.runs():
                running.kill()
        code, output = running.process.returncode, running.output()
        what = f"{starter}, {stroke}: code {code}; there were {before}, there are {self.chief.saved()}"
        try:
            self.judge(code, output, stroke, newest, none_whole)
        except Wrong as wrong:
            raise Wrong(f"{what}\n{output}\n{wrong}") from None
        if os.environ.get("CHIEF_SOAK_VERBOSE"):
            print(what)

    def strike(self, running, starter, stroke):
        """Returns what it was: before there is a rank the launcher is meant."""
        if stroke in ("nothing", "unreadable file", "damaged file"):
            return stroke
        before, until = self.chief.saved(), time.monotonic() + 10
        in_training = self.draw.random() < 0.7  # otherwise in the beginning
        while in_training and self.chief.saved() == before and running.runs() and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(self.draw.uniform(0.0, 0.4) * self.seconds[starter])
        if not running.runs():
            return stroke
        rank = running.process.pid
        if starter != "alone":
            rank = running.find_rank(self.draw.randrange(2), TRAIN)
            if not rank and stroke in ("kill of a rank", "stop"):
                stroke = {"kill of a rank": "kill of all", "stop": "stop of the launcher"}[stroke]
        if stroke == "kill of a rank":
            kill_if_there(rank, signal.SIGKILL)
        elif stroke == "kill of all":
            running.kill()
        elif stroke == "stop":
            kill_if_there(rank, signal.SIGTERM)
        elif stroke == "stop of the launcher":
            kill_if_there(running.process.pid, signal.SIGTERM)
        elif stroke == "full disk":
            self.fill(self.draw.randrange(500_000))
            time.sleep(self.draw.uniform(0.1, 1.0) * self.seconds[starter])
        return stroke

    def fill(self, leave):
        """All but so many bytes of the disk."""
        try:
            with open(self.chief.file("filler"), "wb") as file:
                free = os.statvfs(self.chief.logdir)
                file.write(bytes(max(0, free.f_bavail * free.f_bsize - leave)))
        except OSError:
            pass  # the training was faster

    def judge(self, code, output, stroke, newest, none_whole):
        at, values = resumed_at(output), result_values(output)
        if at != 0 or (values is not None and newest == STEPS):
            self.counts["resumed"] += 1
        began = at != 0 or values is not None or "stopped after step" in output
        if none_whole:
            self.expect(code != 0 and not began, "none is whole, and that is not said")
        if none_whole and code == CONFIGURATION:
            self.expect("is whole" in output, "none is whole, and that is not said")
            self.counts["refused"] += 1
            self.clear("step-*")  # what a user does who begins anew
            return
        if began and newest != STEPS and "restart" not in output:
            self.expect(at == newest, f"it should go on from step {newest}")
        if code == 0 or (values is not None and stroke.startswith(("kill", "stop"))):  # struck after the last line
            self.expect(values is not None and values["param_hash"] == self.expected, f"expected {self.expected}")
            there = self.tensors(STEPS)
            self.expect(there.exists() and there.read_bytes() == self.weights, "the final weights are not on the disk")
            self.counts["finished"] += 1
            self.begin_training()
        elif "stopped after step" in output and stroke.startswith("stop"):  # mpirun, when stopped, has codes of its own
            self.expect(code == STOPPED or stroke == "stop of the launcher", f"expected {STOPPED}")
            self.expect(self.newest() == stopped_after(output), f"its last step is not saved: {self.newest()}")
            self.counts["stopped"] += 1
        elif code < 0 or code > 128 or stroke == "stop of the launcher":
            self.expect(stroke.startswith(("kill", "stop")), "it died")
        else:
            why = FAILURES.get(stroke)
            self.expect(code == FAILED and why is not None and why in output, f"it does not say that {why}")
            self.counts["failed, and said why"] += 1

    @staticmethod
    def expect(condition, what):
        if not condition:
            raise Wrong(what)


def kill_if_there(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def main():
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else random.SystemRandom().randrange(1 << 32)
    starts = int(sys.argv[6]) if len(sys.argv) > 6 else STARTS
    print(f"seed {seed}", flush=True)
    chief = Chief(*sys.argv[1:5])
    try:
        with small_disk(chief.home, 2) as disk:
            soak = Soak(chief, disk, seed)
            while soak.counts["starts"] < starts:
                soak.start(pick(soak.draw, STROKES))
            finished = soak.counts["finished"]
            for _ in range(2):  # the first may find that none is whole
                if soak.counts["finished"] == finished:
                    soak.start("nothing")
            soak.expect(soak.counts["finished"] > finished, "the last training does not finish")
    except Wrong as wrong:
        sys.exit(f"start {soak.counts['starts']} of seed {seed}: {wrong}\n{dict(soak.counts)}")
    finally:
        shutil.rmtree(chief.home, ignore_errors=True)
    print(f"{soak.jobs - 1} trainings: " + ", ".join(f"{what} {count}" for what, count in soak.counts.items()))


if __name__ == "__main__":
    late.end(main)
