#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank is killed or stopped while the engines of a job on one host close. The others have received
everything: they close in order, in time, and leave nothing behind.

usage: close_faults.py MPIRUN WORKER KIND:RANKS:VICTIM:MOMENT...
KIND is kill or stop; MOMENT is close (the victim is about to close) or closing (it is closing).
"""
import signal
import sys
import time

import job as jobs
from job import late

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
SHUTDOWN_TIMEOUT = 3.0
# close() waits for the works in flight, and then at most twice for a departure.
LIMIT = 10 * SHUTDOWN_TIMEOUT


def check(mpirun, worker, kind, ranks, victim, moment):
    before = jobs.shared_memory()
    job = jobs.WorkerJob(mpirun, worker, ranks, recovery=True,
                         environment={"RONDE_SHUTDOWN_TIMEOUT_SECONDS": str(SHUTDOWN_TIMEOUT)},
                         victim=victim, at=moment, signal=int(SIGNALS[kind]))
    others = [rank for rank in range(ranks) if rank != victim]
    job.wait_until(job.struck, 60.0, "the blow")
    try:
        job.wait_until(lambda: all(job.verdict(rank) for rank in others) or not job.runs(), LIMIT,
                       "the others to close")
        closed = time.monotonic() - job.struck()
    finally:
        # MPI itself waits at the end for a rank that stands still.
        jobs.kill_if_there(job.pid(victim), signal.SIGKILL)
    job.end(LIMIT, "its victim is dead")
    for rank in others:
        verdict, where = job.verdict(rank), f"rank {rank}: "
        job.expect(verdict is not None and verdict["status"] == "done", where + f"{verdict}")
        job.expect(job.code(rank) == 0, where + f"exit code {job.code(rank)}")
    left = jobs.left_behind(before)
    job.expect(not left, f"left in /dev/shm: {sorted(left)}")
    print(f"{kind} of rank {victim} of {ranks} ({moment}): the others had closed {closed:.2f} s later", flush=True)
    job.remove()


def main():
    for case in sys.argv[3:]:
        kind, ranks, victim, moment = case.split(":")
        check(sys.argv[1], sys.argv[2], kind, int(ranks), int(victim), moment)


if __name__ == "__main__":
    late.end(main)
