#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Engines over several hosts that have nothing to do: no processor time, no messages, no MPI.

usage: idle.py WORKER JOB...      (JOB: see hosts_job.py)
"""
import re
import sys

import hosts_job
from hosts_job import late

SECONDS = 3.0
CPU = 0.01 * SECONDS
NOISE = 0.005  # the threads of MPI itself, and how the kernel counts
FEW_WAKES = 3


def main():
    for text in sys.argv[2:]:
        job = hosts_job.Job(text)
        done = job.run(sys.argv[1], SECONDS)
        hosts_job.expect(done.returncode == 0, done, f"{text}: failed")
        found = re.findall(r"^rank \d+ idle: cpu=(\S+) control=(\d+) batches=(\d+) wakes=(\d+) calls='(.*)' "
                           r"later='(.*)'$", done.stdout, re.MULTILINE)
        hosts_job.expect(len(found) == job.size, done, f"{text}: expected a line of each rank")
        print(f"{text}:\n{done.stdout}", end="", flush=True)
        for cpu, control, batches, wakes, calls, _ in found:
            hosts_job.expect(float(cpu) < CPU + NOISE, done, f"idling took {cpu} s of {SECONDS} s")
            hosts_job.expect(control == batches == "0", done, "there were messages")
            hosts_job.expect(int(wakes) <= FEW_WAKES, done, f"the background thread woke {wakes} times")
            hosts_job.expect(calls == "", done, f"MPI was called: {calls}")
        # A rank beyond the smallest host's drives no link.
        hosts_job.expect(sum(later != "" for *_, later in found) >= job.hosts, done, "MPI calls go uncounted")


if __name__ == "__main__":
    late.end(main)
