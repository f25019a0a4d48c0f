#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills one rank with SIGKILL in the middle of a collective, in jobs whose survivors mpirun leaves alone.
Every survivor must fail on its own: soon, with the dead rank's number, host and pid, with the inputs of
its out-of-place calls intact and its memory its own again; it must end by itself with the code of its
choice and without another call of MPI, and nothing may be left of the job.

usage: survivors.py MPIRUN WORKER ALGORITHM BYTES RANKS:VICTIM[:joined|:sets|:blocked]...
BYTES may be a list of sizes with commas: vectors that are in flight together. ALGORITHM "prepared" runs
prepared operations, by whatever way they take. joined: the rank has joined when it is killed.
sets: each half of the ranks is a process set. blocked: a rank of the other half stands in its program, so that its set
waits for it, while the victim's goes on.
"""
import random
import socket
import sys
import time

import job as jobs
from job import late

# A rank that the kernel notifies takes milliseconds. Other jobs may hold the cores.
LIMIT = 60.0
START = 120.0
EXIT_FAILED_JOB = 3
BLOCKS_AT, ITERATIONS_BESIDE = 4, 300  # as in worker.cc


def check_survivor(job, rank, victim, culprit, struck):
    verdict = job.verdict(rank)
    job.expect(verdict is not None, f"rank {rank} left no verdict")
    where = f"rank {rank}: "
    job.expect(verdict["status"] != "done", where + "did not notice the death")
    job.expect(culprit in verdict["text"], where + f"its error does not say: {culprit}")
    job.expect(verdict["culprit"] == str(victim), where + "blames another rank")
    job.expect(verdict["later"] == verdict["text"], where + "a later call says something else")
    job.expect(verdict["inputs"] == "intact", where + "its inputs were changed")
    job.expect(verdict["outputs"] == "left alone", where + "its memory was touched after the failure")
    seconds = int(verdict["failed_ns"]) / 1e9 - struck
    late.at_most(seconds, LIMIT, f"the failure of rank {rank}")
    job.expect(job.code(rank) == EXIT_FAILED_JOB, where + f"exit code {job.code(rank)}")
    # MPI_Initialized and the like do not communicate.
    calls = (job.read(f"rank-{rank}.calls") or "nothing was counted").strip()
    calls = [call for call in calls.split(", ") if not call.startswith(("MPI_Initialized ", "MPI_Finalized "))]
    job.expect(calls in ([], [""]), where + f"called MPI after the failure: {calls}")
    return seconds


def check_blocked(job, ranks, victim):
    """The set of the rank that stood came no further, and the other one did not wait for it."""
    for rank in set(range(ranks)) - {victim}:
        done, beside = int(job.verdict(rank)["iterations"]), (rank < ranks // 2) == (victim < ranks // 2)
        # Between the strike and its notice the rank that stood may have gone on.
        right = done > ITERATIONS_BESIDE if beside else BLOCKS_AT <= done < ITERATIONS_BESIDE
        job.expect(right, f"rank {rank} did {done} iterations")


def kill_one(mpirun, worker, algorithm, size, ranks, victim, in_place, how):
    before = jobs.shared_memory()
    prepared, blocked = int(algorithm == "prepared"), how == "blocked"
    large = max(map(int, size.split(","))) > 1 << 20
    # The delay hits the middle of a long collective, or any place in a stream of short ones.
    after = random.uniform(0, 0.008 if large else 0.0005)
    print(f"{algorithm}, {size} bytes, rank {victim} of {ranks}, {'in' if in_place else 'out of'} place, {how + ', ' if how else ''}"
          f"{after * 1e3:.2f} ms into its collective: ", end="", flush=True)
    job = jobs.WorkerJob(mpirun, worker, ranks, recovery=True,
                         environment={"RONDE_ALGORITHM": "auto" if prepared else algorithm},
                         bytes=size, in_place=in_place, prepared=prepared, victim=victim, at=0 if blocked else 4, after=after,
                         joins=int(how == "joined"), sets=int(blocked or how == "sets"),
                         blocked=(0 if victim >= ranks // 2 else ranks - 1) if blocked else -1)
    struck = job.wait_until(job.struck, START, "the kill")
    job.end(LIMIT + max(0.0, struck - time.monotonic()), "a survivor hangs")
    ended = time.monotonic()
    culprit = f"rank {victim} (host {socket.gethostname()}, pid {job.pid(victim)}) died"
    seconds = [check_survivor(job, rank, victim, culprit, struck)
               for rank in range(ranks) if rank != victim]
    if blocked:
        check_blocked(job, ranks, victim)
    job.expect(job.verdict(victim) is None, "the victim lived on")
    left = job.leftovers()
    job.expect(not left, f"processes are left: {left}")
    left = jobs.left_behind(before)
    job.expect(not left, f"left in /dev/shm: {sorted(left)}")
    print(f"failed after {' '.join(f'{s * 1e3:.1f}' for s in seconds)} ms, "
          f"ended after {ended - struck:.2f} s", flush=True)
    job.remove()


def main():
    mpirun, worker, algorithm, size = sys.argv[1:5]
    seed = time.time_ns() % 1_000_000
    print(f"seed {seed}")
    random.seed(seed)
    for i, case in enumerate(sys.argv[5:]):
        ranks, victim, *how = case.split(":")
        # Only calls out of place have inputs that can be compared afterwards.
        kill_one(mpirun, worker, algorithm, size, int(ranks), int(victim), in_place=int(i % 3 == 2),
                 how="".join(how))


if __name__ == "__main__":
    late.end(main)
