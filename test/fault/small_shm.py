#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Containers have a /dev/shm of 64 MiB, which must not limit what a job can reduce: vectors as large as
all of it, in a mount namespace with such a /dev/shm (which Open MPI shares), and with one of a single page
that Open MPI is told not to use.

usage: small_shm.py MPIRUN WORKER
Exit code 77: the kernel or the lack of rights forbids a mount namespace.
"""
import subprocess
import sys
import tempfile

import job as jobs
from job import late

LIMIT = 60.0
BYTES = 64 << 20


def inside(size):
    """The words that start a command in front of a /dev/shm of that size."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c",
            f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "$@"', "sh"]


def reduce(mpirun, worker, ranks, algorithm, size, options=()):
    job = jobs.WorkerJob(mpirun, worker, ranks, before=inside(size), options=options,
                         environment={"RONDE_ALGORITHM": algorithm}, bytes=f"{BYTES},{BYTES},8",
                         iterations=3, in_place=1)
    job.end(LIMIT, "it has a small /dev/shm")
    for rank in range(ranks):
        verdict = job.verdict(rank)
        job.expect(verdict is not None and verdict["status"] == "done", f"rank {rank} failed")
        job.expect(job.code(rank) == 0, f"rank {rank}: exit code {job.code(rank)}")
    print(f"{ranks} ranks, {algorithm}: fine with {size} bytes of /dev/shm", flush=True)
    job.remove()


def main():
    mpirun, worker = sys.argv[1:3]
    probe = subprocess.run([*inside("4k"), "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        print(f"skipped: no mount namespace ({probe.stderr.strip()}); root may make one")
        sys.exit(late.SKIPPED)
    for ranks in (2, 4):
        reduce(mpirun, worker, ranks, "auto", "64m")
    reduce(mpirun, worker, 2, "ring", "64m")
    with tempfile.TemporaryDirectory(prefix="ronde_fault_") as elsewhere:
        reduce(mpirun, worker, 4, "auto", "4k",
               ["--mca", "btl_vader_backing_directory", elsewhere])


if __name__ == "__main__":
    late.end(main)
