#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two engines in every process of a job over several hosts, each used by several threads: over communicators of mpirun's
job, or of different members, over UCX, whose ranks meet over a folder that the hosts share or at a meeting point.

usage: engines.py WORKER PLACE:JOB...      (PLACE: mpi, store or point; JOB: see hosts_job.py)
"""
import pathlib
import sys
import tempfile

from hosts_job import Job, expect, late

LAUNCHED = pathlib.Path(__file__).resolve().parent / "launched"


def main():
    worker, *cases = sys.argv[1:]
    for text in cases:
        place, layout = text.split(":", 1)
        job = Job(layout)
        with tempfile.TemporaryDirectory(prefix="ronde_engines_") as folder:
            done = job.run(worker, "mpi") if place == "mpi" else \
                job.run(LAUNCHED, "hand", worker, place, folder, settings={"RONDE_TRANSPORT": "ucx"})
        expect(done.returncode == 0 and done.stdout.count("two engines are right\n") == job.size, done, f"{text}: failed")
        print(f"{text}: {done.seconds:.1f} s", flush=True)


if __name__ == "__main__":
    late.end(main)
