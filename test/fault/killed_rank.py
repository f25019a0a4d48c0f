#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills one rank of a training job with SIGKILL in mid-epoch. mpirun must end within seconds with a
failure, every other rank that still speaks must name the dead rank, its host and its pid, and nothing
may be left in shared memory.

usage: killed_rank.py MPIRUN PROGRAM RANKS VICTIM
"""
import os
import re
import signal
import socket
import subprocess
import sys
import time

DEADLINE = 20.0  # seconds for mpirun to end; it takes about one


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = file.read().split(b"\0")
    except OSError:
        return {}
    return dict(pair.split(b"=", 1) for pair in pairs if b"=" in pair)


def children_of(parent):
    """The processes below this one, by id."""
    result = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            result.append(int(entry))
            result.extend(children_of(int(entry)))
    return result


def find_rank(mpirun, rank, program):
    for pid in children_of(mpirun):
        if environment_of(pid).get(b"OMPI_COMM_WORLD_RANK") != str(rank).encode():
            continue
        try:
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == os.path.basename(program):
                return pid
        except OSError:
            pass
    return None


def cpu_seconds(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shared_memory():
    return set(os.listdir("/dev/shm"))


def mapped_somewhere(name):
    """Whether a process uses it: then it belongs to another job that runs at the same time."""
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/maps") as file:
                if f"/dev/shm/{name}" in file.read():
                    return True
        except OSError:
            pass
    return False


def left_behind(before):
    # A job that is just starting creates its files before it maps them: look twice.
    for _ in range(2):
        left = {name for name in shared_memory() - before if not mapped_somewhere(name)}
        if not left:
            break
        time.sleep(1)
    return left & shared_memory()


def start_training(mpirun, program, ranks, environment=None):
    return subprocess.Popen(
        [mpirun, "--bind-to", "none", "--oversubscribe", "-np", str(ranks), program,
         "--epochs", "1000", "--global-batch", "120"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env=environment)


def wait_until_training(job, rank, program):
    """The process of a rank, once it is in mid-epoch: when it has used some seconds of processor time,
    the data is long read."""
    started = time.monotonic()
    pid = None
    while pid is None or cpu_seconds(pid) < 2.0:
        if job.poll() is not None or time.monotonic() - started > 60:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
            print(job.communicate(timeout=5)[0])
            sys.exit("the job did not get going")
        pid = find_rank(job.pid, rank, program)
        time.sleep(0.05)
    return pid


def main():
    mpirun, program, ranks, victim = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    before = shared_memory()
    job = start_training(mpirun, program, ranks)
    pid = wait_until_training(job, victim, program)
    try:
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        output = job.communicate(timeout=DEADLINE)[0]
        seconds = time.monotonic() - killed
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        print(job.communicate()[0])
        sys.exit(f"mpirun still ran {DEADLINE:.0f} s after rank {victim} was killed")
    print(output)
    print(f"mpirun ended {seconds:.2f} s after the kill with exit code {job.returncode}")
    if job.returncode == 0:
        sys.exit("mpirun ended with success")
    culprit = f"rank {victim} (host {socket.gethostname()}, pid {pid}) died"
    verdicts = [line for line in output.splitlines() if culprit in line]
    if not verdicts:
        sys.exit(f"no line says: {culprit}")
    own = [line for line in output.splitlines()
           if re.match(r"train_fashion_mnist: rank \d+: |ronde\[rank \d+\]", line)]
    if own and culprit not in own[-1]:
        sys.exit(f"the last line of a rank is not the verdict: {own[-1]}")
    left = left_behind(before)
    if left:
        sys.exit(f"left in /dev/shm: {sorted(left)}")


if __name__ == "__main__":
    main()
