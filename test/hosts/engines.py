#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two engines in every process of a job over several hosts, each used by several threads.

usage: engines.py WORKER JOB...      (JOB: see hosts_job.py)
"""
import sys

import hosts_job
from hosts_job import late


def main():
    for text in sys.argv[2:]:
        job = hosts_job.Job(text)
        done = job.run(sys.argv[1])
        hosts_job.expect(done.returncode == 0 and done.stdout.count("two engines are right\n") == job.size, done,
                         f"{text}: failed")
        print(f"{text}: {done.seconds:.1f} s", flush=True)


if __name__ == "__main__":
    late.end(main)
