#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Worked examples of the field's guides, run and checked: ./dev tour.

For each stop: what it shows, the command, the line of results that it prints, and what is asserted of it. Ends with a
table of strategies against what a program does with them. At most ten minutes on two cores; exit code 1 if
something does not hold. examples/TOUR.md says which guide each stop is from.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

SECONDS = 300  # that one command may take
MPIRUN = "mpirun --oversubscribe --bind-to none -np"
MIRRORED = "--strategy mirrored --replicas"


def sheets(servers, workers):
    """The commands of all tasks, each in a shell of its own; that of worker 0 is the last."""
    hosts = [",".join(f"127.0.0.1:{first + i}" for i in range(count)) for first, count in
             ((2231, servers), (2241, workers))]
    tasks = [f"ps --task_index={i}" for i in range(servers)]
    tasks += [f"worker --task_index={i}" for i in reversed(range(workers))]
    return " & ".join(f"sheets --ps_hosts={hosts[0]} --worker_hosts={hosts[1]} --job_name={task}" for task in tasks)


SMALL_MLP = "train_fashion_mnist --epochs 1 --test-images 1000"


def two_workers(flags):
    """The commands of two workers that TF_CONFIG tells who they are; the chief's, worker 0, is the last."""
    cluster = '{"cluster": {"worker": ["127.0.0.1:2251", "127.0.0.1:2252"]}, "task": {"type": "worker", "index": %d}}'
    return " & ".join(f"env TF_CONFIG='{cluster % index}' {SMALL_MLP} {flags}" for index in (1, 0))


def near(key, value, by):
    return f"{key} is {value} to {by}", lambda now, _: abs(float(now[key]) - value) <= by


def at_least(key, least):
    return f"{key} is at least {least}", lambda now, _: float(now[key]) >= least


def below(key, most):
    return f"{key} is below {most}", lambda now, _: float(now[key]) < most


def equal(key, value):
    return f"{key} is {value}", lambda now, _: now[key] == value


BEFORE = "is that of the stop before"


def same(key):
    return f"{key} {BEFORE}", lambda now, before: now[key] == before[key]


def named_workers(flags, last="worker --task_index=0"):
    tasks = dict.fromkeys(["ps", "worker --task_index=1", "worker --task_index=0", last])
    tasks[last] = tasks.pop(last)
    return " & ".join(f"named_workers {flags} --job_name={task}" for task in tasks)


HOSTS = "--worker_hosts=127.0.0.1:2223,127.0.0.1:2224"
ONE, TWO = f"--ps_hosts=127.0.0.1:2222 {HOSTS}", f"--standby on --ps_hosts=127.0.0.1:2222,127.0.0.1:2221 {HOSTS}"
SMALL_STORE = "--users 20 --items 20 --learning-rate 5"

# What it shows, the command, what is asserted of the values in its last line. {} is a folder of its own.
CONSTANTS = (equal("predicted_in_order", "100"), below("evaluate_loss", 0.05), near("loop_loss", 0.2876, 0.001))
STOPS = [
    ("Dense(1) on constants: compile, fit, evaluate, predict, a loop; one replica", "strategies --strategy none",
     CONSTANTS),
    ("the same on two replicas of one process: each batch of 10 is 5 + 5", f"strategies {MIRRORED} 2", CONSTANTS),
    ("the same on two processes: the same bits", f"{MPIRUN} 2 strategies", (*CONSTANTS, same("param_hash"))),
    ("the same with central storage: the variables once, the same bits", "strategies --strategy central --replicas 2",
     (*CONSTANTS, same("param_hash"))),
    ("a model and a loop of one's own, on two replicas", f"custom_loop --epochs 1 {MIRRORED} 2",
     (at_least("accuracy", 0.75),)),
    ("the same on two processes: the same bits", f"{MPIRUN} 2 custom_loop --epochs 1",
     (at_least("accuracy", 0.75), same("param_hash"))),
    ("compile and fit with every switch: a CNN on two replicas",
     f"train_fashion_mnist --model cnn --epochs 1 --steps 60 --test-images 1000 {MIRRORED} 2",
     (at_least("test_accuracy", 0.6),)),
    ("the same on two processes: the same bits",
     f"{MPIRUN} 2 train_fashion_mnist --model cnn --epochs 1 --steps 60 --test-images 1000", (same("param_hash"),)),
    ("y = 2 x + 10 with a rate of 3e-5 and one random sample a step, under a supervisor",
     "linear_regression --learning_rate 3e-5 --batch 1 --steps 300000 --steps_to_validate 50000 --logdir {}",
     (near("weight", 2, 0.2), near("bias", 10, 0.2))),
    ("the same, started again: it has finished, and says its line once more",
     "linear_regression --learning_rate 3e-5 --batch 1 --steps 300000 --steps_to_validate 50000 --logdir {}",
     (same("param_hash"), same("seconds"))),
    ("a walk through a training of 784-128-10", f"mnist_walkthrough {MIRRORED} 2",
     (at_least("untrained_loss", 2.3), at_least("test_accuracy", 0.8), equal("predicted", "10000"))),
    ("two classes, whose epochs are divided by the ranks and whose rate is multiplied",
     f"{MPIRUN} 2 classify_two_classes --epochs 2 --steps 60 --classes t-shirt,trouser",
     (equal("epochs", "1"), at_least("test_accuracy", 0.93))),
    ("the same on four ranks, as on four nodes",
     f"{MPIRUN} 4 classify_two_classes --epochs 4 --steps 30 --classes t-shirt,trouser",
     (equal("epochs", "1"), equal("ranks", "4"), at_least("test_accuracy", 0.9))),
    ("a generator against a discriminator: three steps to one", f"gan {MIRRORED} 2",
     (("what it makes comes nearer", lambda now, _: float(now["distance"]) < 0.8 * float(now["distance_before"])),)),
    ("the same on two processes: the same bits", f"{MPIRUN} 2 gan", (same("param_hash"), same("discriminator_hash"))),
    ("ten rounds of it on four replicas", f"gan --rounds 10 {MIRRORED} 4", (equal("ranks", "4"),)),
    ("the same on four processes: the same bits", f"{MPIRUN} 4 gan --rounds 10",
     (same("param_hash"), same("discriminator_hash"))),
    ("y = 2 x + 10 on a server, with two workers, as in three shells", " & ".join(
        f"linear_regression --ps_hosts=127.0.0.1:2222 --worker_hosts=127.0.0.1:2223,127.0.0.1:2224 --job_name={task}"
        " --logdir {}/servers"
        for task in ("ps --task_index=0", "worker --task_index=1", "worker --task_index=0")),
     (near("weight", 2, 0.05), near("bias", 10, 0.05), equal("servers", "1"), below("summary/cost", 1))),
    ("a network on a server, which is the last rank: no worker is more than two steps ahead",
     f"{MPIRUN} 3 train_fashion_mnist --servers 1 --mode stale=2 --steps 600 --test-images 1000",
     (at_least("test_accuracy", 0.7), below("most_ahead", 3))),
    ("100 samples, 20 on each replica: one device takes five steps",
     "strategies --per-replica 20 --epochs 1 --strategy none",
     (equal("steps", "5"),)),
    ("two devices take three steps, the last of 20 samples for both",
     f"strategies --per-replica 20 --epochs 1 {MIRRORED} 2",
     (equal("steps", "3"),)),
    ("a rate by the global batch: 5 samples on one replica", "strategies --per-replica 5 --strategy none",
     (equal("learning_rate", "0.1"), below("evaluate_loss", 0.05))),
    ("10 samples on two", f"strategies --per-replica 5 {MIRRORED} 2",
     (equal("learning_rate", "0.15"), below("evaluate_loss", 0.05))),
    ("ten nodes, each with 1,000 of 10,000 images, average their weights once: federated averaging",
     f"{MPIRUN} 10 train_fashion_mnist --average weights --every 100 --global-batch 100 --steps 100 --test-images 1000",
     (equal("ranks", "10"), at_least("test_accuracy", 0.55))),
    ("every ten steps: local SGD",
     f"{MPIRUN} 10 train_fashion_mnist --average weights --every 10 --global-batch 100 --steps 100 --test-images 1000",
     (at_least("test_accuracy", 0.7),)),
    ("three towers on files in CIFAR's format", f"data_formats --format cifar {MIRRORED} 3",
     (equal("replicas", "3"), below("loss", 0.6))),
    ("the same network on arrays of numpy", f"data_formats --format npy {MIRRORED} 2", (below("loss", 0.6),)),
    ("on the program's own memory: the same bits", f"data_formats --format memory {MIRRORED} 2", (same("param_hash"),)),
    ("a folder of pictures of two classes, and the area under their curve",
     f"data_formats --format pictures {MIRRORED} 2", (at_least("auc", 0.95),)),
    ("a pipeline: four ranks with two layers each; only messages between them", f"{MPIRUN} 4 pipeline",
     (below("difference", 1e-6), equal("collectives", "0"), below("loss", 0.5))),
    ("a layer split by columns and one by rows, over two pairs of ranks", f"{MPIRUN} 4 tensor_parallel",
     (below("difference", 1e-6), below("loss", 0.5))),
    ("the pipeline in one process", f"pipeline {MIRRORED} 4", (below("difference", 1e-6), equal("collectives", "0"))),
    ("the split layers in one process", f"tensor_parallel {MIRRORED} 4", (below("difference", 1e-6),)),
    ("workers with a loop each on a server (between-graph)", named_workers(ONE),
     (equal("way", "between"), near("weight", 2, 0.05), near("bias", 10, 0.05))),
    ("the chief gives each step to a worker by name, with its samples (in-graph)",
     named_workers(f"{ONE} --chief_hosts=127.0.0.1:2225", "chief"),
     (equal("way", "by_name"), near("weight", 2, 0.05), near("bias", 10, 0.05))),
    ("a recommender whose rows are on two servers, each with a standby", " & ".join([
        *(f"recommender {TWO} {SMALL_STORE} --job_name=ps --task_index={i}" for i in range(2)),
        f"{MPIRUN} 2 recommender {TWO} {SMALL_STORE} --job_name=worker"]),
     (equal("rows", "server"), at_least("accuracy", 0.8))),
    ("10,000 sheets of 128 products: a multiplier and an adder", sheets(1, 1),
     (equal("total", "319279663647"), equal("directly", "319279663647"))),
    ("three multipliers and four adders: the same total, exactly", sheets(4, 3),
     (equal("adders", "4"), equal("multipliers", "3"), same("total"))),
    ("two workers, step by step: first one process alone", f"{SMALL_MLP} --steps 20", (equal("ranks", "1"),)),
    ("two shells with a TF_CONFIG each, and a folder where the chief saves",
     two_workers("--steps 20 --logdir {}/workers"), (equal("ranks", "2"), equal("steps", "20"))),
    ("both started again, for 40 steps: they take the 20 that are left, from the chief's checkpoint",
     two_workers("--steps 40 --logdir {}/workers"), (equal("ranks", "2"), equal("steps", "20"))),
    ("the same 40 steps without an end between them, started by mpirun: the same bits",
     f"{MPIRUN} 2 {SMALL_MLP} --steps 40", (same("param_hash"), at_least("test_accuracy", 0.7))),
]

STRATEGIES = {"none": "--strategy none", "onedevice": "--strategy onedevice", "mirrored": f"{MIRRORED} 2",
              "multiworker": "", "central": "--strategy central --replicas 2",
              "server": "--servers 1 --mode sync"}
SMALL = "train_fashion_mnist --epochs 1 --test-images 500 --save-seconds 0"
# What a program does, and with which commands; of the last one the line of results counts.
DOES = {"fit": [f"{SMALL} --steps 10"],
        "custom loop": ["strategies --epochs 1"],
        "evaluate": [f"{SMALL} --steps 20 --early-stopping on"],
        "save and restore": [f"{SMALL} --steps 10 --logdir {{}}", f"{SMALL} --steps 20 --logdir {{}}"]}
# What a server takes its variables from is one model.
SERVED = {"strategies --epochs 1": "custom_loop --epochs 1"}
# Asked for, and refused in a line.
REFUSED = [("--strategy none --replicas 2", "use --strategy mirrored"),
           ("--strategy onedevice --replicas 2", "use --strategy mirrored"),
           ("--strategy none --threads 2", "use --strategy onedevice"),
           ("--cross-device ReductionToOneDevice", "use --strategy mirrored"),
           ("--strategy parameterserver", "use one of: none onedevice mirrored multiworker central")]


class Tour:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        self.problems = 0

    def words(self, command, logdir):
        words = shlex.split(command.replace("{}", logdir))
        place = next(i for i, word in enumerate(words) if (self.folder / word).is_file())
        return [*words[:place], str(self.folder / words[place]), *words[place + 1:]]

    def run(self, command, logdir):
        """What the last of these commands prints; those before it, with & between them, run beside it."""
        *beside, last = command.split(" & ")
        tasks = [subprocess.Popen(self.words(one, logdir), stdout=subprocess.DEVNULL, env=self.environment,
                                  stdin=subprocess.DEVNULL) for one in beside]
        try:
            done = late.run(self.words(last, logdir), SECONDS, env=self.environment)
            for task in tasks:
                late.finish(task, SECONDS)
                done.returncode = done.returncode or task.returncode
            return done
        finally:
            for task in tasks:
                task.kill()

    @staticmethod
    def results(done):
        """The last line with values; an empty one where there is none."""
        return next((line for line in reversed(done.stdout.splitlines()) if "=" in line), "")

    def values(self, done):
        """Those of that line; none where it has failed."""
        if done.returncode != 0:
            return {}
        return dict(pair.split("=", 1) for pair in self.results(done).split() if "=" in pair)

    @staticmethod
    def summaries(logdir):
        """The last of each name that the chief has written there, in lines beside its event files."""
        found = {}
        for file in pathlib.Path(logdir).glob("metrics.jsonl"):
            for line in file.read_text(encoding="utf-8").splitlines():
                found |= {f"summary/{name}": str(value) for name, value in json.loads(line).items()}
        return found

    def fail(self, what, done):
        self.problems += 1
        print(f"   DOES NOT HOLD: {what} (exit code {done.returncode})\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

    def stop(self, number, stop, before, logdir):
        shows, command, asserted = stop
        print(f"{number}. {shows}\n   $ {command.replace('{}', 'LOGDIR')}", flush=True)
        start = time.monotonic()
        done = self.run(command, logdir)
        now = self.values(done) | self.summaries(f"{logdir}/servers")
        print(f"   {self.results(done)}")
        for what, holds in asserted:
            try:
                good = bool(now) and holds(now, before)
            except (KeyError, ValueError):
                good = False
            if good:
                print(f"   holds: {what}")
            else:
                self.fail(what, done)
        print(f"   {time.monotonic() - start:.1f} s\n", flush=True)
        return now

    def cell(self, strategy, commands, logdir):
        for command in commands:
            if strategy == "server":
                command = f"{MPIRUN} 3 {SERVED.get(command, command)} {STRATEGIES[strategy]}"
            else:
                command = f"{command} {STRATEGIES[strategy]}"
            done = self.run(command, logdir)
            now = self.values(done)
            if not now.get("param_hash"):
                break
        else:
            # What goes on from 10 steps takes 10 of the 20.
            if len(commands) == 1 or now["steps"] == "10":
                return "works", now["param_hash"]
        self.fail(command, done)
        return (done.stderr.splitlines() or ["failed"])[-1], None

    def table(self):
        """Every strategy with everything that it does; one process has the same bits under all with as many replicas."""
        print("strategy    " + "  ".join(f"{what:16}" for what in DOES))
        hashes = {}
        for strategy in STRATEGIES:
            row = []
            for what, commands in DOES.items():
                with tempfile.TemporaryDirectory(prefix="ronde_tour_") as logdir:
                    said, found = self.cell(strategy, commands, logdir)
                row.append(f"{said:16}")
                hashes[strategy, what] = found
            print(f"{strategy:10}  " + "  ".join(row), flush=True)
        for what in DOES:
            for group in (("none", "onedevice", "multiworker"), ("mirrored", "central")):
                found = {hashes[strategy, what] for strategy in group}
                if len(found) != 1:
                    self.problems += 1
                    print(f"   DOES NOT HOLD: {what}: {group} have the same bits, and these are {found}")
        print("\nAsked for, and refused in a line:")
        for flags, why in REFUSED:
            done = self.run(f"strategies {flags}", "")
            lines = done.stderr.splitlines()
            print(f"{flags}: {lines[-1] if lines else 'not refused'}")
            if done.returncode == 0 or len(lines) != 1 or why not in lines[0]:
                self.fail(f"{flags} is refused in one line with: {why}", done)

    def take(self, stops):
        print(f"{len(STOPS)} stops, then a table. Programs are in {self.folder}; LOGDIR is a folder of this run alone.\n")
        before = {}
        with tempfile.TemporaryDirectory(prefix="ronde_tour_") as logdir:
            for number, stop in enumerate(STOPS, 1):
                if stops is None or number in stops:
                    before = self.stop(number, stop, before, logdir)
        if stops is None or 0 in stops:
            self.table()


def needs_the_one_before(number):
    """Whether a stop compares with the one before, or goes on in its folder."""
    (_, before, _), (_, command, asserted) = STOPS[number - 2:number]
    folders = re.findall(r"--logdir (\{\}\S*)", command)
    return any(what.endswith(BEFORE) for what, _ in asserted) or any(
        folder in re.findall(r"--logdir (\{\}\S*)", before) for folder in folders)


def stops_of(text):
    """The numbers in "1,2"."""
    numbers = {int(one) if one.isdigit() else -1 for one in text.split(",")}
    if not numbers <= set(range(len(STOPS) + 1)):
        raise argparse.ArgumentTypeError(f"{text}: use numbers from 0, which is the table, to {len(STOPS)}, as in 1,2")
    for number in range(len(STOPS), 1, -1):
        if number in numbers and needs_the_one_before(number):
            numbers.add(number - 1)
    return numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", help="where the programs are")
    parser.add_argument("--stops", type=stops_of, help="only these and those that they go on from, with commas between them; 0 is the table")
    options = parser.parse_args()
    start = time.monotonic()
    tour = Tour(options.bin)
    tour.take(options.stops)
    print(f"{tour.problems} problems, {time.monotonic() - start:.0f} s")
    return 1 if tour.problems else 0


if __name__ == "__main__":
    late.end(main)
