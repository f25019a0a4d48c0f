#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training over several hosts: how the ranks are spread over hosts changes the loss by rounding only, and the
order in which gradients are submitted changes nothing.

usage: training.py FOLDER_OF_THE_PROGRAMS JOB...      (jobs of 4 ranks: see hosts_job.py)
"""
import pathlib
import re
import sys

import hosts_job
from hosts_job import late
import plain_data

FLAGS = {"epochs": 1, "global_batch": 120, "learning_rate": 0.01, "momentum": 0, "seed": 1}


def train(program, job, **more):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in {**FLAGS, **more}.items()]
    done = job.run(program, *flags)
    hosts_job.expect(done.returncode == 0, done, f"{job.text}: the training failed")
    # Another process may have the last word on a standard output that hosts share.
    lines = re.findall(r"^ranks=.*$", done.stdout, re.MULTILINE)
    hosts_job.expect(len(lines) == 1, done, f"{job.text}: expected one line of results")
    values = dict(pair.split("=", 1) for pair in lines[0].split())
    hosts_job.expect(values["ranks"] == "4", done, f"{job.text}: expected 4 ranks")
    print(f"{job.text} {more}: {lines[0]}", flush=True)
    return values


def main():
    program = pathlib.Path(sys.argv[1]) / "train_fashion_mnist"
    # No score is read.
    FLAGS.update(data=plain_data.unpacked(sys.argv[1]), test_images=100)
    losses = []
    jobs = sys.argv[2:]
    for text in jobs:
        job = hosts_job.Job(text)
        values = train(program, job)
        losses.append(float(values["train_loss"]))
        if job.hosts == 1:
            continue
        # Ranks that submit in different orders. The bits depend on the tensors and the job's shape alone.
        shuffled = train(program, job, shuffle_submission=1)
        if shuffled["param_hash"] != values["param_hash"]:
            sys.exit(f"{text}: another order of submission gives other parameters: {shuffled} against {values}")
    spread = (max(losses) - min(losses)) / min(losses)
    print(f"losses {losses}, relative spread {spread:.1e}")
    if spread > 1e-5:
        sys.exit(f"losses {losses} of the jobs {jobs} differ by {spread:.1e}")


if __name__ == "__main__":
    late.end(main)
