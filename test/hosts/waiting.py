#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that wait for a slow line sleep, where the transport gives them something to sleep on.

usage: waiting.py WORKER JOB TRANSPORT      (WORKER: idle_worker; JOB: see hosts_job.py)
"""
import re
import sys

import hosts_job

RATE = "8mbit"
BYTES = 4 << 20
LEAST = 2.0  # seconds that so many bytes take at least, at a million bytes a second
SHARE = 0.15  # of a core: each byte costs some time, wherever the line is that slow


def main():
    worker, text, transport = sys.argv[1:]
    job = hosts_job.Job(text)
    done = job.run(worker, "wait", BYTES, settings={"RONDE_TRANSPORT": transport}, flags=["--rate", RATE])
    hosts_job.expect(done.returncode == 0, done, f"{text}: failed")
    found = re.findall(r"^rank \d+ waited: seconds=(\S+) cpu=(\S+) right=1$", done.stdout, re.MULTILINE)
    hosts_job.expect(len(found) == job.size, done, f"{text}: expected a line of each rank")
    print(f"{text}, {transport}:\n{done.stdout}", end="", flush=True)
    for seconds, cpu in found:
        hosts_job.expect(float(seconds) >= LEAST, done, f"the line was no slow one: {seconds} s")
        hosts_job.expect(float(cpu) <= SHARE * float(seconds), done, f"waiting for {seconds} s took {cpu} s of a core")


if __name__ == "__main__":
    main()
