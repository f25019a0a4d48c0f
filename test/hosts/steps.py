#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that did different things over several hosts: a step that one left out is an error of all ranks in that step,
and engines of one name meet in whatever order they are opened.

usage: steps.py JOB PROGRAM [ARGUMENT]...      (JOB: see hosts_job.py; the program names the rank and the step)
"""
import sys

from hosts_job import Job, expect, late


def main():
    text, *command = sys.argv[1:]
    job = Job(text)
    done = job.run(*command)
    expect(done.returncode == 0 and "mixed" not in done.stdout, done, f"{text}: failed")
    if command[-1] == "engines":
        expect(done.stdout.count("went through\n") == job.size, done, f"{text}: not every rank went through")
    else:
        words = "is in step 3, rank 1 is in step 4"
        expect(sum(words in line for line in done.stdout.splitlines()) == job.size, done,
               f"{text}: not every rank was told of the step")
    print(f"{text} {command[-1]}: {done.seconds:.1f} s", flush=True)


if __name__ == "__main__":
    late.end(main)
