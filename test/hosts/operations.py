#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every operation over several hosts, all at once and in another order on each rank, against a serial
oracle for the job's shape: so every algorithm between the hosts gives the same bytes.

usage: operations.py WORKER JOB ALGORITHM [by_hand] [NAME=VALUE...]      (JOB: see hosts_job.py; settings of Ronde)
"""
import pathlib
import re
import sys

import hosts_job
from hosts_job import late

# A line of each job: the hashes of all results of each rank.
BITS = pathlib.Path(__file__).with_name("operation_bits.txt")


def shape_text(job):
    if len(set(job.counts)) == 1:
        return (f"{job.hosts} host{'s' if job.hosts > 1 else ''} x {job.counts[0]} "
                f"rank{'s' if job.counts[0] > 1 else ''}")
    return f"hosts of {' + '.join(str(count) for count in job.counts)} ranks"


def expect_transport(done, setting, by_hand):
    """The table of the job says what carries tensors between hosts and why, and a user whose Open MPI yields (as that
    of ./run does) is told that UCX would not."""
    mpi = setting == "mpi" or (setting == "auto" and not by_hand)
    reason = (f"RONDE_TRANSPORT={setting}" if setting != "auto" else
              "MPI did not start the job" if by_hand else "MPI started the job")
    pattern = rf"between hosts over {'MPI [(]Open MPI' if mpi else 'UCX [(]UCX'} .*; {reason}[)], and control over TCP"
    hosts_job.expect(re.search(pattern, done.stderr), done, f"expected {pattern}")
    told = "Open MPI gives the core away" in done.stderr
    hosts_job.expect(told == mpi, done, "the note on yielding is there exactly where MPI carries tensors")


def expect_bits(done, job):
    """The bits are those of the file, whichever transport and algorithm carried them, and whoever started the ranks."""
    found = dict(re.findall(r"^rank (\d+) has the bits ([0-9a-f]{16})$", done.stdout, re.MULTILINE))
    line = job.text + " " + ",".join(found.get(str(rank), "none") for rank in range(job.size))
    lines = [known for known in BITS.read_text().splitlines() if known.split()[0] == job.text]
    hosts_job.expect(lines == [line], done, f"expected the line {lines} of {BITS.name}, and got: {line}")


def main():
    worker, job, algorithm = sys.argv[1], hosts_job.Job(sys.argv[2]), sys.argv[3]
    settings = {"RONDE_ALGORITHM": algorithm, "RONDE_LOG_LEVEL": "info"}
    settings.update(word.split("=", 1) for word in sys.argv[4:] if "=" in word)
    leaders = ",".join(str(leader) for leader in job.leaders)
    start = [pathlib.Path(__file__).with_name("launched"), "hand"] if "by_hand" in sys.argv else []
    done = job.run(*start, worker, f"leaders={leaders}", settings=settings)
    right = re.findall(r"^(\d+) operations are right$", done.stdout, re.MULTILINE)
    hosts_job.expect(done.returncode == 0 and len(right) == job.size, done, f"{job.text}, {algorithm}: failed")
    # The data must move by the algorithm that was asked for, and by no other.
    lines = re.findall(r"rank \d+ of \d+: data moves over (.*)", done.stderr)
    hosts_job.expect(len(lines) == job.size, done, "expected a line of each rank that tells how data moves")
    named = "gather up to" if algorithm == "auto" else f"the {algorithm}, as RONDE_ALGORITHM={algorithm} asks"
    for line in lines:
        hosts_job.expect(job.hosts == 1 or (named in line and shape_text(job) in line), done,
                         f"expected {named!r} and {shape_text(job)!r} in: {line}")
    expect_bits(done, job)
    if job.hosts > 1:
        expect_transport(done, settings.get("RONDE_TRANSPORT", "auto"), bool(start))
    # The table of ranks has the address that a host uses towards the others, and its leader's links.
    rows = re.findall(r"^ *\d+  \S+-(\d+) +(\S+) +\d+  (.*)$", done.stdout, re.MULTILINE)
    places = [(str(host + 1), f"10.213.0.{host + 1}" if job.hosts > 1 else "-", job.hosts > 1 and leader == rank)
              for rank, (host, leader) in enumerate(zip(job.host_of, job.leaders))]
    hosts_job.expect([(host, address, talk.endswith("over TCP (control)")) for host, address, talk in rows] == places,
                     done, f"expected a table of ranks with {places}")
    print(f"{job.text} (leaders {leaders}), {algorithm}: {right[0]} operations on each rank, {done.seconds:.1f} s; "
          f"data moves over {lines[0]}")


if __name__ == "__main__":
    late.end(main)
