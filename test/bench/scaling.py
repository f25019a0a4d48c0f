#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on 1, 2 and 4 hosts, beside one another: ./dev scaling.

The hosts are network namespaces of this machine, with one rank and one line each, of 1 Gbit/s and of 100 Mbit/s
(test/hosts/run). Two programs are measured: classify_two_classes, whose 20 epochs are divided by the number of
hosts as a public guide to Horovod on Azure does it, and 100 steps of train_fashion_mnist --model cnn with 64 images
a rank, whose gradients are 8 MiB. Where hosts share cores a row shows what distribution costs, and no scaling: it
says so. Where a whole training would not end in time, its first steps are measured, and the row says that too.

Needs root.
"""

import argparse
import dataclasses
import datetime
import json
import math
import os
import pathlib
import signal
import sys
import time

import scaling_plot
from programs import CannotRun, Hosts, ProgramError, Programs
from report import aligned, number
from rows import machine_text, note_busy_machine

TWO_CLASSES = "classify_two_classes"
CNN = "train_fashion_mnist --model cnn"
# Typed in: the guide trains a binary classifier for 20 epochs on one worker, and for 20 divided by the workers on
# all. It decides nothing, since its machines, pictures and network are others.
GUIDE_MINUTES = (7.5, 5.0)

EPOCHS = 20
BATCH = 64  # images of a rank in a step, in both programs
IMAGES_OF_TWO_CLASSES = 12_000
CNN_STEPS = 100
PROBE_STEPS = {TWO_CLASSES: 20, CNN: 5}  # which show how many fit into the time
GRADIENT_BITS = {TWO_CLASSES: 13.4e6, CNN: 67.3e6}
START_SECONDS = 8.0  # for a job to start and to evaluate its model, on a busy machine
RESERVE_SECONDS = 30.0  # of the whole run, for what is between the jobs

RATES = {"1gbit": "1 Gbit/s", "100mbit": "100 Mbit/s"}
BITS_PER_SECOND = {"1gbit": 1e9, "100mbit": 1e8}
# One host has no line to wait for. The longest come last, and take what the others have left of the time.
LAYOUTS = tuple(Hosts(hosts, 1, rate, mpi_idle="spin") for hosts, rate in (
    (1, "1gbit"), (2, "1gbit"), (4, "1gbit"), (4, "100mbit"), (2, "100mbit")))


@dataclasses.dataclass(frozen=True)
class Case:
    program: str
    hosts: Hosts

    @property
    def line(self):
        return "" if self.hosts.hosts == 1 else RATES[self.hosts.rate]

    @property
    def layout(self):
        return "1 host" if self.hosts.hosts == 1 else f"{self.hosts.hosts} hosts, {self.line}"

    @property
    def steps(self):
        """Of the whole measurement."""
        if self.program == CNN:
            return CNN_STEPS
        # Every rank goes over as many images in an epoch as there are.
        return math.ceil(EPOCHS / self.hosts.hosts) * math.ceil(IMAGES_OF_TWO_CLASSES / BATCH)

    @property
    def expected_step(self):
        """About how many seconds a step takes on two cores of some 2,500 images/s each. Only the share of the time
        that a case may take depends on it."""
        hosts = self.hosts.hosts
        line = 2 * (hosts - 1) / hosts * GRADIENT_BITS[self.program] / BITS_PER_SECOND[self.hosts.rate]
        return 0.025 * max(1.0, hosts / 2) + line

    @property
    def weight(self):
        return 2 * START_SECONDS + self.steps * self.expected_step

    def flags(self, steps):
        if self.program == CNN:
            return ["--model", "cnn", "--epochs", "1", "--global-batch", str(BATCH * self.hosts.hosts), "--test-images",
                    "1000", "--steps", str(steps)]
        return ["--epochs", str(EPOCHS), "--batch", str(BATCH), "--steps", str(steps)]


CASES = [Case(program, hosts) for program in (CNN, TWO_CLASSES) for hosts in LAYOUTS]


@dataclasses.dataclass
class Measured:
    """What a program said, or why it said nothing."""

    case: Case
    steps: int = 0  # that were taken
    seconds: float = 0.0  # of these steps
    images_per_second: float = 0.0
    compute: float = 0.0  # shares of rank 0's time
    wait: float = 0.0
    transfer: float = 0.0
    error: str = ""

    @property
    def whole_seconds(self):
        """The time of all steps; scaled up where only the first of them were taken."""
        return self.seconds * self.case.steps / self.steps

    def note(self, cores):
        if self.error:
            return self.error
        notes = []
        if self.case.hosts.hosts > cores:
            notes.append(f"{self.case.hosts.hosts} hosts share {cores} core{'s' if cores > 1 else ''}: overhead, not scaling")
        if self.steps < self.case.steps:
            notes.append(f"from the first {self.steps} of {self.case.steps} steps")
        return "; ".join(notes)


def time_text(seconds):
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def steps_in(seconds, step_seconds, case):
    """How many steps of a case are taken where it may last so long."""
    return max(PROBE_STEPS[case.program], min(case.steps, int((seconds - START_SECONDS) / step_seconds)))


class Progress:
    """A bar on a terminal; a line per job elsewhere."""

    def __init__(self, stream, total):
        self.stream = stream
        self.total = total
        self.done = 0
        self.what = ""
        self.start = time.monotonic()

    def begin(self, what):
        self.what = what
        self.draw()

    def draw(self):
        if not self.stream.isatty():
            return
        full = 20 * self.done // self.total
        self.stream.write(f"\r[{'=' * full}{' ' * (20 - full)}] {self.done} of {self.total}, "
                          f"{time_text(time.monotonic() - self.start)}: {self.what}\033[K")
        self.stream.flush()

    def end(self, text):
        self.done += 1
        clear = "\r\033[K" if self.stream.isatty() else ""
        print(f"{clear}{self.done:2} of {self.total}, after {time_text(time.monotonic() - self.start)}: {text}",
              file=self.stream, flush=True)


class Scaling:
    """Measures all cases within some seconds."""

    def __init__(self, programs, progress, seconds, clock=time.monotonic):
        self.programs = programs
        self.progress = progress
        self.clock = clock
        self.deadline = clock() + seconds - RESERVE_SECONDS

    @property
    def left(self):
        return self.deadline - self.clock()

    def run(self, case, steps):
        """Returns the numbers of the last line of a job."""
        command = self.programs.command(case.hosts, case.program.split()[0], *case.flags(steps))
        job = self.programs.start(command)
        try:
            return self.programs.key_values(self.programs.finish(job, max(self.left, 1.0), self.progress.draw))
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()

    def steps(self, case, share):
        """How many steps fit into this share of the time that is left."""
        if self.programs.quick:
            return 5
        probe = self.run(case, PROBE_STEPS[case.program])
        return steps_in(share * self.left, probe["seconds"] / probe["steps"], case)

    def measure(self, case, share):
        self.progress.begin(f"{case.program}, {case.layout}")
        if self.left < 2 * START_SECONDS:
            return Measured(case, error="no time was left")
        try:
            result = self.run(case, self.steps(case, share))
            return Measured(case, int(result["steps"]), result["seconds"], result["images_per_second"],
                            result["compute_share"], result["wait_share"], result["transfer_share"])
        except (ProgramError, KeyError) as error:
            return Measured(case, error=" ".join(str(error).split()) or "failed")

    def all(self, cases):
        rows = []
        for index, case in enumerate(cases):
            row = self.measure(case, case.weight / sum(other.weight for other in cases[index:]))
            rows.append(row)
            text = row.error or time_text(row.whole_seconds)
            self.progress.end(f"{case.program}, {case.layout}: {text}")
        return rows


def in_order(rows):
    """As they are read: by program, by line, by hosts."""
    programs, rates = (TWO_CLASSES, CNN), list(RATES)
    return sorted(rows, key=lambda row: (programs.index(row.case.program), rates.index(row.case.hosts.rate),
                                         row.case.hosts.hosts))


def table(rows, cores):
    one = {row.case.program: row for row in rows if row.case.hosts.hosts == 1 and not row.error}
    cells = [["program", "hosts", "line", "time", "images/s", "to 1 host", "compute", "wait", "transfer", "note"]]
    for row in rows:
        line = [row.case.program, str(row.case.hosts.hosts), row.case.line]
        if row.error:
            line += [""] * 6
        else:
            alone = one.get(row.case.program)
            speedup = f"{number(row.images_per_second / alone.images_per_second)} x" if alone else ""
            line += [time_text(row.whole_seconds), f"{row.images_per_second:,.0f}", speedup,
                     *(f"{100 * share:.0f} %" for share in (row.compute, row.wait, row.transfer))]
        cells.append([*line, row.note(cores)])
    return aligned(cells)


def legend():
    before, after = GUIDE_MINUTES
    yield (f"the guide (Horovod on Azure, on its machines, typed in): {before:g} -> {after:g} minutes, "
           f"{before / after:.2f} x; it decides nothing")
    yield (f"time: {TWO_CLASSES}: {EPOCHS} epochs divided by the hosts; cnn: {CNN_STEPS} steps of {BATCH} images a rank. "
           "Shares are of rank 0's time: it computes or waits; a transfer goes on beside either")
    yield "all hosts are on this machine: even with a core each they share its memory and the work of the network"


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./dev scaling", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="build/release/bin", help="the folder of the programs")
    parser.add_argument("--svg", default="build/scaling.svg", metavar="FILE",
                        help="where the picture goes (default build/scaling.svg)")
    parser.add_argument("--json", metavar="FILE", help="write the rows to this file")
    parser.add_argument("--minutes", type=float, default=20.0, help="how long it may take (default 20)")
    parser.add_argument("--quick", action="store_true", help="take 5 steps of each, which shows that it runs")
    return parser.parse_args(arguments)


def as_json(rows, machine, date, cores):
    return {"machine": machine, "date": date, "guide_minutes": GUIDE_MINUTES, "rows": [
        {"program": row.case.program, "hosts": row.case.hosts.hosts, "line": row.case.line, "steps": row.steps,
         "all_steps": row.case.steps, "seconds": None if row.error else row.whole_seconds,
         "images_per_second": row.images_per_second, "compute_share": row.compute, "wait_share": row.wait,
         "transfer_share": row.transfer, "note": row.note(cores)} for row in rows]}


def main(arguments, make_programs=Programs):
    options = parse(arguments)

    def log(text):
        print(text, file=sys.stderr, flush=True)

    try:
        for file in filter(None, (options.svg, options.json)):
            with open(file, "a", encoding="utf-8"):
                pass  # what cannot be written is better known now than in 20 minutes
    except OSError as error:
        log(f"./dev scaling: {error.filename}: {error.strerror}")
        return 1
    cores = len(os.sched_getaffinity(0))
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    busy = note_busy_machine(log)
    scaling = Scaling(make_programs(options.bin, log, options.quick), Progress(sys.stderr, len(CASES)), 60 * options.minutes)
    try:
        rows = in_order(scaling.all(CASES))
    except CannotRun as reason:
        log(f"./dev scaling: {reason}")
        return 1
    print(f"{machine_text()}, {date}; one rank on each host, one thread on each rank")
    print("\n".join([*table(rows, cores), *legend()]))
    if busy:
        print("warning: other programs used this machine when it began, so the figures mean little")
    pathlib.Path(options.svg).write_text(scaling_plot.picture(rows, GUIDE_MINUTES, cores), encoding="utf-8")
    print(f"picture: {options.svg}")
    if options.json:
        document = as_json(rows, machine_text(), date, cores)
        pathlib.Path(options.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 1 if any(row.error for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
