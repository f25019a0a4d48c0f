#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stops one rank with SIGSTOP in the middle of a collective.

    standstill.py MPIRUN WORKER ALGORITHM RANKS:VICTIM[:BYTES]...

If it stays stopped, the others must fail at the stall deadline and name the rank; once it is continued it
must receive the failure, and end as they do. The last case of large vectors also continues the rank before
the deadline: then there is a warning, and the job ends with right results. With small vectors most of the
time no batch is in progress.
"""
import os
import signal
import socket
import sys

import job as jobs
from job import late

STALL_FAILURE = 2.0
LIMIT = 60.0
START = 60.0
EXIT_FAILED_JOB = 3
# Several large vectors in flight, so that a stop some milliseconds in hits the middle of one.
BYTES = "33554432,33554432,33554432"


def start(mpirun, worker, algorithm, ranks, victim, failure, iterations, size=BYTES):
    return jobs.WorkerJob(mpirun, worker, ranks, recovery=True,
                          environment={"RONDE_ALGORITHM": algorithm.replace("prepared", "auto"), "RONDE_STALL_WARNING_SECONDS": "0.5",
                                       "RONDE_STALL_FAILURE_SECONDS": str(failure)},
                          bytes=size, prepared=int(algorithm == "prepared"), victim=victim, at=3, after=0.003, signal=int(signal.SIGSTOP),
                          iterations=iterations)


def check_failed(job, rank, victim):
    """One rank's verdict. Returns when it failed, in seconds after the stop."""
    verdict = job.verdict(rank)
    where = f"rank {rank}: "
    culprit = f"rank {victim} (host {socket.gethostname()}, pid {job.pid(victim)}) is stopped"
    job.expect(verdict["status"] != "done", where + "did not notice")
    job.expect(culprit in verdict["text"], where + f"its error does not say: {culprit}")
    job.expect(verdict["culprit"] == str(victim), where + "blames another rank")
    job.expect(verdict["inputs"] == "intact", where + "its inputs were changed")
    job.expect(verdict["outputs"] == "left alone", where + "its memory was touched after the failure")
    return int(verdict["failed_ns"]) / 1e9 - job.struck()


def stop_for_good(mpirun, worker, algorithm, ranks, victim, size=BYTES):
    print(f"{algorithm}, rank {victim} of {ranks} stopped, {size} bytes: ", end="", flush=True)
    job = start(mpirun, worker, algorithm, ranks, victim, STALL_FAILURE, 0, size)
    others = [rank for rank in range(ranks) if rank != victim]
    job.wait_until(job.struck, START, "the stop")
    pid = job.pid(victim)
    try:
        job.wait_until(lambda: all(job.verdict(rank) for rank in others), LIMIT, "the verdicts")
        seconds = [check_failed(job, rank, victim) for rank in others]
    finally:
        jobs.kill_if_there(pid, signal.SIGCONT)
    output = job.end(LIMIT, "its stopped rank was continued")
    job.expect(job.verdict(victim) is not None, "the stopped rank left no verdict")
    check_failed(job, victim, victim)
    for rank in range(ranks):
        job.expect(job.code(rank) == EXIT_FAILED_JOB, f"rank {rank}: exit code {job.code(rank)}")
    job.expect("warning: " in output, "nobody warned before")
    print(f"failed after {' '.join(f'{s:.2f}' for s in seconds)} s", flush=True)
    job.remove()


def stop_for_a_while(mpirun, worker, algorithm, ranks, victim):
    job = start(mpirun, worker, algorithm, ranks, victim, 600, 6)
    job.wait_until(job.struck, START, "the stop")
    pid = job.pid(victim)
    job.wait_until(lambda: jobs.stat_fields(pid)[0] == "T", LIMIT, "the process to stand still")
    warning = f"rank {victim} (host {socket.gethostname()}, pid {pid}) is stopped"
    job.wait_until(lambda: warning in job.output(), LIMIT, "a warning that names the stopped rank")
    os.kill(pid, signal.SIGCONT)
    job.end(START, "its stopped rank was continued")
    for rank in range(ranks):
        verdict = job.verdict(rank)
        job.expect(verdict is not None and verdict["status"] == "done", f"rank {rank} failed")
        job.expect(job.code(rank) == 0, f"rank {rank}: exit code {job.code(rank)}")
    print(f"{algorithm}, rank {victim} of {ranks} stopped and continued: all went on", flush=True)
    job.remove()


def main():
    mpirun, worker, algorithm = sys.argv[1:4]
    cases = [tuple(map(int, case.split(":"))) for case in sys.argv[4:]]
    for case in cases:
        stop_for_good(mpirun, worker, algorithm, *case)
    if len(cases[-1]) == 2:
        stop_for_a_while(mpirun, worker, algorithm, *cases[-1])


if __name__ == "__main__":
    late.end(main)
