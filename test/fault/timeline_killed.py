#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills one rank with SIGKILL while all of them write a timeline. The file must load as it stands, with what every rank
did until then, the victim too.

usage: timeline_killed.py MPIRUN WORKER RANKS:VICTIM...
"""
import json
import pathlib
import sys
import tempfile

import job as jobs
from job import late

LIMIT = 60.0
START = 120.0
ITERATIONS = 20_000
# What SIGKILL takes is what has been recorded since the writer took the last events, ten times in a second, and what it
# has not written of those. The victim does ITERATIONS in less than a second, so killed at once it may lose most of
# them; SECONDS later it has written what was recorded before, unless its writer gets no processor for so long.
SECONDS = 2


def kill_one(mpirun, worker, ranks, victim):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.json"
        job = jobs.WorkerJob(mpirun, worker, ranks, recovery=True, environment={"RONDE_TIMELINE": str(path)},
                             bytes=40000, victim=victim, at=ITERATIONS, after=SECONDS)
        job.wait_until(job.struck, START, "the kill")
        job.end(LIMIT, "a survivor hangs")
        try:
            events = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            job.fail(f"the file does not load: {error}: ...{path.read_text(encoding='utf-8')[-200:]}")
        batches = {rank: sum(event.get("cat") == "BATCH" and event["pid"] == rank for event in events)
                   for rank in range(ranks)}
        print(f"rank {victim} of {ranks}: {path.stat().st_size} bytes, batches by rank {batches}", flush=True)
        for rank, count in batches.items():
            job.expect(count >= ITERATIONS, f"rank {rank} is there with {count} batches only")
        job.remove()


def main():
    mpirun, worker = sys.argv[1:3]
    for case in sys.argv[3:]:
        ranks, victim = map(int, case.split(":"))
        kill_one(mpirun, worker, ranks, victim)


if __name__ == "__main__":
    late.end(main)
