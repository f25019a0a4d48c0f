#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A thread that waits for another host sleeps, where the transport gives it something to sleep on.

usage: waiting.py WORKER JOB TRANSPORT      (WORKER: idle_worker; JOB: see hosts_job.py)
"""
import re
import sys

import hosts_job
from hosts_job import late

CPU = 0.02  # of the second that the ranks wait
FEW_WAKES = 3


def main():
    worker, text, transport = sys.argv[1:]
    job = hosts_job.Job(text)
    done = job.run(worker, "waiting", settings={"RONDE_TRANSPORT": transport}, flags=["--rate", "100mbit"])
    hosts_job.expect(done.returncode == 0, done, f"{text}: failed")
    found = re.findall(r"^rank \d+ waits: cpu=(\S+) wakes=(\d+) ended=0$", done.stdout, re.MULTILINE)
    hosts_job.expect(len(found) == job.size - 1, done, f"{text}: expected a line of each rank but one")
    print(f"{text}, {transport}:\n{done.stdout}", end="", flush=True)
    for cpu, wakes in found:
        hosts_job.expect(float(cpu) <= CPU, done, f"waiting for a second took {cpu} s")
        hosts_job.expect(int(wakes) <= FEW_WAKES, done, f"the background thread woke {wakes} times")


if __name__ == "__main__":
    late.end(main)
