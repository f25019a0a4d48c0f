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
import sys
import time

import job as jobs
from job import late

DEADLINE = 60.0  # seconds for mpirun to end; it takes about one


def start_training(mpirun, program, ranks, environment=None):
    return jobs.Job(mpirun, (ranks, [program, "--epochs", "1000", "--global-batch", "120"]),
                    environment=environment)


def wait_until_training(job, rank, program):
    """The process of a rank, once it is in mid-epoch: when it has used some seconds of processor time,
    the data is long read."""
    pid = job.wait_until(lambda: job.find_rank(rank, program), 60, f"the process of rank {rank}")
    job.wait_until(lambda: jobs.cpu_seconds(pid) >= 2.0, 60, "the training to get going")
    return pid


def main():
    mpirun, program, ranks, victim = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    before = jobs.shared_memory()
    job = start_training(mpirun, program, ranks)
    pid = wait_until_training(job, victim, program)
    os.kill(pid, signal.SIGKILL)
    killed = time.monotonic()
    output = job.end(DEADLINE, f"rank {victim} was killed")
    seconds = time.monotonic() - killed
    print(output)
    print(f"mpirun ended {seconds:.2f} s after the kill with exit code {job.process.returncode}")
    if job.process.returncode == 0:
        sys.exit("mpirun ended with success")
    culprit = f"rank {victim} (host {socket.gethostname()}, pid {pid}) died"
    verdicts = [line for line in output.splitlines() if culprit in line]
    if not verdicts:
        sys.exit(f"no line says: {culprit}")
    own = [line for line in output.splitlines()
           if re.match(r"train_fashion_mnist: rank \d+: |ronde\[rank \d+\]", line)]
    if own and culprit not in own[-1]:
        sys.exit(f"the last line of a rank is not the verdict: {own[-1]}")
    left = jobs.left_behind(before)
    if left:
        sys.exit(f"left in /dev/shm: {sorted(left)}")


if __name__ == "__main__":
    late.end(main)
