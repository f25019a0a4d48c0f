#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stops one rank of a training job with SIGSTOP. The job must end at the stall deadline with a line that
names the rank that stands still.

usage: stopped_rank.py MPIRUN PROGRAM RANKS VICTIM
"""
import os
import signal
import socket
import sys
import time

import job as jobs
from job import late
import killed_rank

STALL_FAILURE = 3.0
DEADLINE = 60.0


def main():
    mpirun, program, ranks, victim = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    job = killed_rank.start_training(mpirun, program, ranks,
                                     {"RONDE_STALL_WARNING_SECONDS": "1",
                                      "RONDE_STALL_FAILURE_SECONDS": str(STALL_FAILURE)})
    pid = killed_rank.wait_until_training(job, victim, program)
    os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        output = job.end(DEADLINE, f"rank {victim} was stopped")
    finally:
        jobs.kill_if_there(pid, signal.SIGKILL)  # a stopped process does not react to mpirun's SIGTERM
    print(output)
    print(f"ended {time.monotonic() - stopped:.1f} s after the stop, "
          f"exit code {job.process.returncode}")
    if job.process.returncode == 0:
        sys.exit("the job ended with success")
    culprit = f"rank {victim} (host {socket.gethostname()}, pid {pid}) is stopped"
    if culprit not in output:
        sys.exit(f"no line says: {culprit}")


if __name__ == "__main__":
    late.end(main)
