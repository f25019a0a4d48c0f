#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills, or stops, one rank in the middle of messages between two ranks. Every survivor must fail soon, name
the rank, its host and its pid, have its memory to itself again, and end by itself; one that is stopped and
continued before the deadline is named by a warning, and all goes on.

usage: message_faults.py MPIRUN WORKER SETTING kill|stop|pause:RANKS:VICTIM:BYTES...
SETTING is that of RONDE_MESSAGES, BYTES a list of sizes with commas.
"""
import os
import random
import signal
import socket
import sys
import time

import job as jobs
from job import late

LIMIT = 60.0
START = 60.0
STALL_FAILURE = 2.0
EXIT_FAILED_JOB = 3


def start(mpirun, worker, setting, how, ranks, victim, size):
    failure = {"kill": 60, "stop": STALL_FAILURE, "pause": 600}[how]
    large = max(map(int, size.split(","))) > 1 << 20
    return jobs.WorkerJob(mpirun, worker, ranks, recovery=True,
                          environment={"RONDE_MESSAGES": setting, "RONDE_STALL_WARNING_SECONDS": "0.5",
                                       "RONDE_STALL_FAILURE_SECONDS": str(failure)},
                          bytes=size, victim=victim, at=4, after=random.uniform(0, 0.008 if large else 0.0005),
                          signal=int(signal.SIGKILL if how == "kill" else signal.SIGSTOP),
                          iterations=0 if how != "pause" else 40 if large else 20_000)


def check_failed(job, rank, victim, culprit):
    verdict = job.verdict(rank)
    where = f"rank {rank}: "
    job.expect(verdict is not None, where + "left no verdict")
    job.expect(verdict["status"] != "done", where + "did not notice")
    job.expect(culprit in verdict["text"], where + f"its error does not say: {culprit}: {verdict['text']}")
    job.expect(verdict["culprit"] == str(victim), where + f"blames another rank: {verdict}")
    job.expect(verdict["later"] == verdict["text"], where + f"a later call says something else: {verdict['later']}")
    job.expect(verdict["outputs"] == "left alone", where + "its memory was touched after the failure")
    seconds = int(verdict["failed_ns"]) / 1e9 - job.struck()
    late.at_most(seconds, LIMIT, f"the failure of rank {rank}")
    return seconds


def kill_one(job, others, victim):
    struck = job.struck()
    job.end(LIMIT + max(0.0, struck - time.monotonic()), "a survivor hangs")
    culprit = f"rank {victim} (host {socket.gethostname()}, pid {job.pid(victim)}) died"
    seconds = [check_failed(job, rank, victim, culprit) for rank in others]
    job.expect(job.verdict(victim) is None, "the victim lived on")
    return f"failed after {' '.join(f'{s * 1e3:.1f}' for s in seconds)} ms"


def stop_one(job, others, victim):
    pid = job.pid(victim)
    culprit = f"rank {victim} (host {socket.gethostname()}, pid {pid}) is stopped"
    try:
        job.wait_until(lambda: all(job.verdict(rank) for rank in others), LIMIT, "the verdicts")
        seconds = [check_failed(job, rank, victim, culprit) for rank in others]
    finally:
        jobs.kill_if_there(pid, signal.SIGCONT)
    output = job.end(LIMIT, "its stopped rank was continued")
    check_failed(job, victim, victim, culprit)
    job.expect("has waited for" in output and culprit in output, "no warning names the stopped rank")
    return f"failed after {' '.join(f'{s:.2f}' for s in seconds)} s"


def pause_one(job, others, victim):
    pid = job.pid(victim)
    warning = f"rank {victim} (host {socket.gethostname()}, pid {pid}) is stopped"
    job.wait_until(lambda: warning in job.output(), LIMIT, "a warning that names the stopped rank")
    os.kill(pid, signal.SIGCONT)
    job.end(START, "its stopped rank was continued")
    for rank in (*others, victim):
        verdict = job.verdict(rank)
        job.expect(verdict is not None and verdict["status"] == "done", f"rank {rank} failed: {verdict}")
    return "all went on"


def main():
    mpirun, worker, setting = sys.argv[1:4]
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")
    random.seed(seed)
    for case in sys.argv[4:]:
        how, ranks, victim, size = case.split(":")
        ranks, victim = int(ranks), int(victim)
        before = jobs.shared_memory()
        print(f"{setting}, {how} rank {victim} of {ranks}, {size} bytes: ", end="", flush=True)
        job = start(mpirun, worker, setting, how, ranks, victim, size)
        job.wait_until(job.struck, START, "the strike")
        others = [rank for rank in range(ranks) if rank != victim]
        said = {"kill": kill_one, "stop": stop_one, "pause": pause_one}[how](job, others, victim)
        for rank in others:
            job.expect(job.code(rank) == (0 if how == "pause" else EXIT_FAILED_JOB),
                       f"rank {rank}: exit code {job.code(rank)}")
        left = jobs.left_behind(before)
        job.expect(not left, f"left in /dev/shm: {sorted(left)}")
        print(said, flush=True)
        job.remove()


if __name__ == "__main__":
    late.end(main)
