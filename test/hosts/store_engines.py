#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Engines of different members, side by side in each process of a job over several hosts, whose ranks meet over a folder
that the hosts share, and at a meeting point. The bytes move over UCX.

usage: store_engines.py WORKER JOB...      (JOB: see hosts_job.py)
"""
import pathlib
import sys
import tempfile

from hosts_job import Job, expect, late

LAUNCHED = pathlib.Path(__file__).resolve().parent / "launched"


def main():
    worker, *jobs = sys.argv[1:]
    for text in jobs:
        for place in ("store", "point"):
            job = Job(text)
            with tempfile.TemporaryDirectory(prefix="ronde_store_") as folder:
                done = job.run(LAUNCHED, "hand", worker, folder, place, settings={"RONDE_TRANSPORT": "ucx"})
            expect(done.returncode == 0 and done.stdout.count("two engines are right\n") == job.size, done,
                   f"{text}, {place}: failed")
            print(f"{text}, {place}: {done.seconds:.1f} s", flush=True)


if __name__ == "__main__":
    late.end(main)
