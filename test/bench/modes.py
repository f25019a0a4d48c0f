#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One job nine ways: with a ring, on one device, with central storage, and with parameter servers in their modes.

Fashion-MNIST, a perceptron, two workers and two servers on this host. One worker is slowed in async, and in sync, to
compare. Prints a table, writes an SVG, and says when to use which, from these numbers. A loss is of the chief's images
where there are servers, and else of all workers': its jitter compares modes of servers. The column of bytes says where
a number is not counted in the run itself.
"""

import argparse
import functools
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

from scaling_plot import document, rectangle, text

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORKERS, SERVERS = 2, 2
START = 1.0  # seconds until the chief is started
SLOW = 3.0  # times slower, for the slowed worker
SECONDS = 400  # that a run may take
BATCH = 64  # images of a worker in a step
PARAMETERS = 784 * 128 + 128 + 128 * 10 + 10
RUNS = itertools.count()
BYTES_NOTE = """\
bytes/step: of numbers, that worker 0, which is the chief, sends and receives in one of its steps.
  computed: for the ring, 2 (n - 1) / n of the gradients each way; on one host they are summed in shared memory.
  of the chief: it sends batches (with their texts), receives losses and pulls at times, for each step of any worker;
  what the workers pull and push beside is not counted there: it is that of async.
  not counted: the replicas of central storage read and sum the variables in the memory of one process."""


class JobError(Exception):
    """A task of a job with servers failed."""


def run_servers(program, flags, slow_ms=0.0, fed=False, workers=WORKERS, servers=SERVERS, watch=lambda *_: None):
    """Starts a server job's tasks, and returns what the chief prints. `watch` is called with each of its lines: when it
    came, in seconds, the line, and {(job, index): the process of a task}."""
    # Names of sockets in memory, as those of a job under mpirun on one host: nobody else can take them.
    run = f"{os.getpid()}-{next(RUNS)}"
    addresses = [f"ipc://@ronde-modes-{run}-{i}" for i in range(workers + servers + 1)]
    hosts = ["--ps_hosts", ",".join(addresses[:servers]), "--worker_hosts", ",".join(addresses[servers:-1])]
    if fed:
        hosts += ["--chief_hosts", addresses[-1], "--feed", "chief"]
    chief = ("chief", 0) if fed else ("worker", 0)
    names = {("ps", i) for i in range(servers)} | {("worker", i) for i in range(workers)}
    names = [*sorted(names - {chief}), chief]
    tasks, lines = {}, []
    try:
        for name, index in names:
            if (name, index) == chief:
                time.sleep(START)  # the others have read their data, and wait for the variables
            more = ["--slow_ms", str(slow_ms)] if (name, index) == ("worker", workers - 1) and slow_ms else []
            tasks[name, index] = subprocess.Popen(
                [program, *hosts, "--job_name", name, "--task_index", str(index), *flags, *more],
                stdout=subprocess.PIPE if (name, index) == chief else subprocess.DEVNULL, text=True)
        limit = threading.Timer(SECONDS, tasks[chief].kill)
        limit.start()
        try:
            for line in tasks[chief].stdout:
                lines.append(line)
                watch(time.monotonic(), line, tasks)
        finally:
            limit.cancel()
        for (name, index), task in tasks.items():
            if task.wait(60) != 0:
                raise JobError(f"{name} {index} has failed, with exit code {task.returncode}; its lines are above")
    except subprocess.TimeoutExpired as error:
        raise JobError(f"a task did not end within a minute of the chief: {error}") from error
    finally:
        for task in tasks.values():
            if task.poll() is None:
                task.kill()
    return "".join(lines)


def run_ring(program, mpirun, ranks, flags):
    """Starts ranks without servers."""
    command = [mpirun, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), program, *flags]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS).stdout


def run_central(program, flags):
    """The workers are replicas of one process, which share the variables."""
    command = [program, "--strategy", "central", "--replicas", str(WORKERS), *flags]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS).stdout


def result_of(text):
    """The numbers of a run: those of its last line, and the jitter of its loss."""
    def number(*names):
        found = [re.search(rf"\b{name}=([-+.e0-9]+)", text) for name in names]
        return float(next(one for one in found if one)[1])

    losses = [float(one) for one in re.findall(r"^step \d+: loss ([-+.e0-9]+)", text, re.MULTILINE)]
    late = losses[len(losses) // 2:]
    steps = [abs(b - a) for a, b in zip(late, late[1:])]
    staleness = re.search(r" staleness=(\S*)", text)
    counts = [(int(a), int(b)) for a, b in re.findall(r"(\d+)\+?:(\d+)", staleness[1])] if staleness else []
    pushes = sum(count for _, count in counts)
    return {"seconds": number("seconds"), "rate": number("images_per_second"),
            "accuracy": number("test_accuracy"),
            "bytes": number("chief_bytes_per_step") if "chief_bytes_per_step=" in text else None,
            "staleness": sum(a * b for a, b in counts) / pushes if pushes else 0.0,
            "jitter": sum(steps) / len(steps) if steps else float("nan")}


def bytes_cell(name, result):
    """The bytes of a step, and where that number is from if the run has not counted what a worker moves."""
    if name == "ring":
        return f"{16.0 * PARAMETERS * (WORKERS - 1) / WORKERS:.0f} computed"
    if name == "one device":
        return "0"  # there is nobody to send to
    if result["bytes"] is None:
        return "not counted"
    return f"{result['bytes']:.0f}{' of the chief' if name == 'async, chief-fed' else ''}"


def svg(results):
    """Bars of images/s, with the accuracy beside each."""
    most = max(one["rate"] for _, one in results)
    shapes = [text(8, 20, "images/s of two workers, and accuracy on the test images")]
    for i, (name, one) in enumerate(results):
        y = 34 + 28 * i
        length = 330 * one["rate"] / most
        shapes += [text(8, y + 15, name), rectangle(170, y, length, 20, "#4878a8"),
                   text(176 + length, y + 15, f'{one["rate"]:.0f}, {100 * one["accuracy"]:.1f} %')]
    return document(640, 28 * len(results) + 40, shapes)


def advice(by_name):
    """Three sentences, from the numbers."""
    ring, sync = by_name["ring"], by_name["servers, sync"]
    best = max(("servers, async", "servers, stale=2"), key=lambda name: by_name[name]["rate"])
    slow_sync, slow_async = by_name["sync, one slowed"], by_name["async, one slowed"]
    return "\n".join([
        f"Where all workers are alike, the ring takes {ring['rate']:.0f} images/s and servers in sync "
        f"{sync['rate']:.0f}: use {'the ring' if ring['rate'] >= sync['rate'] else 'servers'}.",
        f"Where one worker is slow, async takes {slow_async['rate']:.0f} images/s and sync {slow_sync['rate']:.0f}: "
        f"use {'async' if slow_async['rate'] > slow_sync['rate'] else 'sync'} there.",
        f"What waits for nobody pays in gradients of older variables: {best.split(', ')[1]} has a mean staleness of "
        f"{by_name[best]['staleness']:.2f}, a jitter of the loss of {by_name[best]['jitter']:.3f} (sync "
        f"{sync['jitter']:.3f}) and {100 * by_name[best]['accuracy']:.1f} % accuracy "
        f"(sync {100 * sync['accuracy']:.1f} %)."])


def ways_of(program, mpirun, updates):
    """[(name, what runs it)]. `updates`: pushes of each run, all workers together."""
    flags = ["--learning-rate", "0.05", "--momentum", "0", "--log-every", "25", "--epochs", "1000"]
    # A sync step is a push of each worker: all runs see as many images.
    rounds = ["--steps", str(updates // WORKERS), "--global-batch", str(BATCH * WORKERS), *flags]
    pushes = ["--steps", str(updates), "--global-batch", str(BATCH * WORKERS), *flags]
    one = ["--global-batch", str(BATCH), *flags, "--steps"]

    @functools.cache
    def slow():
        """How many milliseconds longer a step of the slowed worker takes."""
        alone = run_ring(program, mpirun, 1, [*one, str(updates // WORKERS)])
        return (SLOW - 1.0) * 1000.0 * result_of(alone)["seconds"] / (updates // WORKERS)

    return [("one device", lambda: run_ring(program, mpirun, 1, [*one, str(updates)])),
            ("ring", lambda: run_ring(program, mpirun, WORKERS, rounds)),
            ("central storage", lambda: run_central(program, rounds)),
            ("servers, sync", lambda: run_servers(program, [*rounds, "--mode", "sync"])),
            ("servers, async", lambda: run_servers(program, [*pushes, "--mode", "async"])),
            ("servers, stale=2", lambda: run_servers(program, [*pushes, "--mode", "stale=2"])),
            ("async, chief-fed", lambda: run_servers(program, [*pushes, "--mode", "async"], fed=True)),
            ("async, one slowed", lambda: run_servers(program, [*pushes, "--mode", "async"], slow())),
            ("sync, one slowed", lambda: run_servers(program, [*rounds, "--mode", "sync"], slow()))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--updates", type=int, default=3000, help="pushes of each run, all workers together")
    parser.add_argument("--svg", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "ronde-modes.svg")
    options = parser.parse_args()
    ways = ways_of(str(options.bin / "train_fashion_mnist"), options.mpirun, options.updates)
    results = []
    print(f"{'way':20}{'seconds':>9}{'images/s':>10}{'accuracy':>10}{'bytes/step':>20}{'staleness':>11}{'jitter':>8}")
    for name, run in ways:
        one = result_of(run())
        results.append((name, one))
        print(f"{name:20}{one['seconds']:9.1f}{one['rate']:10.0f}{100 * one['accuracy']:9.1f}%"
              f"{bytes_cell(name, one):>20}{one['staleness']:11.2f}{one['jitter']:8.3f}", flush=True)
    print(BYTES_NOTE)
    options.svg.write_text(svg(results), encoding="utf-8")
    print(f"\n{advice(dict(results))}\n\npicture: {options.svg}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except JobError as failed:
        sys.exit(str(failed))
