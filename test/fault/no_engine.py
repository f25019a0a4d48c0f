#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank that never starts MPI must not hang the others for ever: they end at the start deadline with one
line that says why.

usage: no_engine.py MPIRUN PROGRAM
"""
import os
import signal
import subprocess
import sys
import time

START_TIMEOUT = 2.0
# The rank that waits must end at its deadline; mpirun itself takes about a second more.
DEADLINE = 5 * START_TIMEOUT


def main():
    mpirun, program = sys.argv[1], sys.argv[2]
    environment = dict(os.environ, RONDE_START_TIMEOUT_SECONDS=str(START_TIMEOUT))
    started = time.monotonic()
    job = subprocess.Popen(
        [mpirun, "--bind-to", "none", "--oversubscribe", "-np", "1", program, ":", "-np", "1",
         "true"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True)
    try:
        output = job.communicate(timeout=DEADLINE)[0]
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        print(job.communicate()[0])
        sys.exit(f"the job still ran after {DEADLINE:.0f} s")
    print(output)
    print(f"ended after {time.monotonic() - started:.1f} s with exit code {job.returncode}")
    if job.returncode == 0:
        sys.exit("the job ended with success")
    if "RONDE_START_TIMEOUT_SECONDS" not in output:
        sys.exit("nothing says why the job ended")


if __name__ == "__main__":
    main()
