#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers on several hosts that nothing but TF_CONFIG has introduced train to the bits of those that mpirun started; so do
replicas of a worker to those of as many workers on a host.

    strategies.py PROGRAM JOB...            PROGRAM is test/e2e/strategy's; see hosts_job.py for JOB
    strategies.py --feeding PROGRAM [RATE]  measures, on 2 hosts (100mbit unless named), how fast batches reach the
                                            workers: from the chief, or each from its own data
"""

import pathlib
import re
import sys

from hosts_job import Job, expect, late

BY_TF_CONFIG = pathlib.Path(__file__).resolve().parent / "by_tf_config"


def last_line(done):
    expect(done.returncode == 0, done, "the training failed")
    return [line for line in done.stdout.splitlines() if "replicas=" in line][-1]


def compare(program, jobs):
    for text in jobs:
        job = Job(text)
        words = (program, "multiworker", "1", "bits")
        over_mpi, by_hand = last_line(job.run(*words)), last_line(job.run(BY_TF_CONFIG, *words))
        assert over_mpi == by_hand, f"{text}:\n{over_mpi} over MPI\n{by_hand} with TF_CONFIG"
        print(f"{text}: {by_hand}")
    # Two replicas in one worker on each host are laid out as two workers.
    replicas = last_line(Job("2:1").run(program, "multiworker", "2", "bits"))
    workers = last_line(Job("2:2").run(program, "multiworker", "1", "bits"))
    assert replicas == workers, f"2 x 2:\n{replicas} as replicas\n{workers} as workers"


def feeding(program, rate):
    job = Job("2:1")
    for way, title in (("chief", "in-graph: the chief feeds"), ("shards", "between-graph: all read, each takes its part"),
                       ("own", "between-graph: each reads its own")):
        done = job.run(program, "multiworker", "1", "feed", way, 20, flags=("--rate", rate))
        expect(done.returncode == 0, done, "the training failed")
        speed = re.findall(r"steps_per_second=([0-9.]+)", done.stdout)[-1]
        print(f"{rate}, 2 workers, 250 images each: {title}: {speed} steps/s", flush=True)


def main():
    if sys.argv[1] == "--feeding":
        feeding(sys.argv[2], (sys.argv[3:] or ["100mbit"])[0])
    else:
        compare(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    late.end(main)
