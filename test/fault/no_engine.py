#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that never starts MPI must not hang the others for ever: they end at the start deadline with one
line that gives the reason.

usage: no_engine.py MPIRUN PROGRAM
"""
import sys
import time

import job as jobs
from job import late

START_TIMEOUT = 2.0
# The rank that waits must end at its deadline; mpirun itself takes about a second more.
DEADLINE = 5 * START_TIMEOUT


def main():
    mpirun, program = sys.argv[1], sys.argv[2]
    job = jobs.Job(mpirun, (1, [program]), (1, ["sleep", str(2 * late.PATIENCE * DEADLINE)]),
                   environment={"RONDE_START_TIMEOUT_SECONDS": str(START_TIMEOUT)})
    output = job.end(DEADLINE, "one of its ranks never starts MPI")
    print(output)
    print(f"ended after {time.monotonic() - job.started:.1f} s, exit code {job.process.returncode}")
    if job.process.returncode == 0:
        sys.exit("the job ended with success")
    if "RONDE_START_TIMEOUT_SECONDS" not in output:
        sys.exit("nothing says why the job ended")


if __name__ == "__main__":
    late.end(main)
