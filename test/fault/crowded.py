#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs that share the machine: two jobs at once, many that start at once, and jobs beside processes that
never rest. They may be slow; they must not stand still, and no sum may be wrong. (The jobs have different
numbers, so that a value that gets into the wrong board is noticed.)

usage: crowded.py MPIRUN WORKER jobs|hogs
"""
import subprocess
import sys

import job as jobs
from job import late

LIMIT = 60.0  # takes a few seconds
SIZES = "8,4096,300000,4194304"


def finish(started):
    for what, job in started:
        output = job.end(LIMIT, f"{what} stands still")
        for rank in range(job.ranks):
            verdict = job.verdict(rank)
            job.expect(verdict is not None and verdict["status"] == "done",
                       f"{what}: rank {rank} failed: {output}")
            job.expect(job.code(rank) == 0, f"{what}: rank {rank}: exit code {job.code(rank)}")
        slowest = max(int(job.verdict(rank)["longest_ns"]) for rank in range(job.ranks)) / 1e9
        print(f"{what}: {job.verdict(0)['iterations']} iterations, the slowest took {slowest:.3f} s",
              flush=True)
        job.remove()


def side_by_side(mpirun, worker):
    for algorithms in (("auto", "auto"), ("auto", "ring")):
        started = []
        for seed, algorithm in enumerate(algorithms, start=1):
            job = jobs.WorkerJob(mpirun, worker, 2, environment={"RONDE_ALGORITHM": algorithm},
                                 bytes=SIZES, iterations=300, in_place=seed % 2, seed=seed)
            started.append((f"job {seed} of 2 at once, {algorithm}", job))
        finish(started)


def all_at_once(mpirun, worker):
    """Many small jobs that open their engines at one instant: their names must not clash."""
    for start in range(3):
        started = [(f"job {seed} of 6 that start at once", jobs.WorkerJob(
            mpirun, worker, 2, bytes="8,300000", iterations=5, seed=6 * start + seed))
            for seed in range(1, 7)]
        finish(started)


def beside_hogs(mpirun, worker):
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for ranks, algorithm, iterations in ((2, "auto", 150), (4, "auto", 80), (4, "ring", 20)):
            job = jobs.WorkerJob(mpirun, worker, ranks, environment={"RONDE_ALGORITHM": algorithm},
                                 bytes=SIZES, iterations=iterations, in_place=1)
            finish([(f"{ranks} ranks beside 2 hogs, {algorithm}", job)])
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def main():
    mpirun, worker, company = sys.argv[1:4]
    for crowd in {"jobs": (side_by_side, all_at_once), "hogs": (beside_hogs,)}[company]:
        crowd(mpirun, worker)


if __name__ == "__main__":
    late.end(main)
