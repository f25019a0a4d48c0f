#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank is killed or stopped while the engines of a job on one host open, or close. While they open, every other rank
must end by itself soon after the start deadline, with an error that names the rank and its host. While they close, the
others have received everything: they close in order and in time. Nothing is left behind.

usage: start_faults.py MPIRUN WORKER KIND:RANKS:VICTIM:MOMENT...
KIND is kill or stop; MOMENT is one of MOMENTS, close (the victim is about to close) or closing (it is closing).
"""
import signal
import socket
import sys
import time

import job as jobs
from job import late

# How many collectives of the start have ended for the victim (see start_worker.cc).
MOMENTS = {"join": 0, "hosts": 1, "engine": 3, "greet": 5, "board": 7, "enter": 9}
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
START_TIMEOUT = 6.0  # MPI itself must have started by then, beside other tests and builds
# A rank notices at 9/8 of the time; the rest is for a machine on which ranks get no core for seconds.
DEADLINE = 3 * START_TIMEOUT
LIMIT = 2 * DEADLINE  # more than enough for close(), which waits at most twice for a departure
EXIT_FAILED_JOB = 3


def check(mpirun, worker, kind, ranks, victim, moment):
    before = jobs.shared_memory()
    opens = moment in MOMENTS
    at = {"after": MOMENTS[moment]} if opens else {"at": moment}
    job = jobs.WorkerJob(mpirun, worker, ranks, recovery=True, victim=victim, signal=int(SIGNALS[kind]), **at,
                         environment={"RONDE_START_TIMEOUT_SECONDS": str(START_TIMEOUT),
                                      "RONDE_SHUTDOWN_TIMEOUT_SECONDS": "3"})
    others = [rank for rank in range(ranks) if rank != victim]
    job.wait_until(job.struck, 60.0, "the blow")
    try:
        # The victim's shell leaves an exit code as well, so the job may end here. At the end MPI itself waits for a rank
        # that stands still.
        end = job.code if opens else job.verdict
        job.wait_until(lambda: all(end(rank) is not None for rank in others) or not job.runs(), LIMIT,
                       "the others to end")
        took = time.monotonic() - job.struck()
    finally:
        jobs.kill_if_there(job.pid(victim), signal.SIGKILL)
    job.end(LIMIT, "its victim is dead")
    texts = set()
    for rank in others:
        verdict, where = job.verdict(rank), f"rank {rank}: "
        job.expect(verdict is not None and (verdict["status"] != "done") == opens, where + f"{verdict}")
        job.expect(job.code(rank) == (EXIT_FAILED_JOB if opens else 0), where + f"exit code {job.code(rank)}")
        if opens:
            job.expect(verdict["culprit"] == str(victim), where + f"blames rank {verdict['culprit']}: {verdict['text']}")
            job.expect(f"rank {victim}" in verdict["text"] and socket.gethostname() in verdict["text"],
                       where + f"names no rank and host: {verdict['text']}")
            texts.add(verdict["text"])
    if opens:
        took = max(int(job.verdict(rank)["failed_ns"]) / 1e9 for rank in others) - job.struck()
    late.at_most(took, DEADLINE, f"the end of the last rank ({kind}, {moment})")
    left = jobs.left_behind(before)
    job.expect(not left, f"left in /dev/shm: {sorted(left)}")
    print(f"{kind} of rank {victim} of {ranks} ({moment}): the last knew after {took:.2f} s: " + "\n  or: ".join(texts),
          flush=True)
    job.remove()


def main():
    for case in sys.argv[3:]:
        kind, ranks, victim, moment = case.split(":")
        check(sys.argv[1], sys.argv[2], kind, int(ranks), int(victim), moment)


if __name__ == "__main__":
    late.end(main)
