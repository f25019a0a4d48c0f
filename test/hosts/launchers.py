#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks on several hosts that nobody's mpirun has introduced, but ronderun, or the variables of another launcher: they
meet over TCP, with a secret, and train over UCX to the bits that MPI gives.

    launchers.py FOLDER JOB[/KIND...]...

FOLDER has the example programs; see hosts_job.py for JOB, and launched for KIND (hand without one).
"""
import pathlib
import re
import sys
import tempfile

from hosts_job import Job, expect, late
import plain_data

LAUNCHED = pathlib.Path(__file__).resolve().parent / "launched"
IMAGES = 2000  # more than the steps take
TRAINING = ("train_fashion_mnist", "--steps=10", "--test-images=100")


def param_hash(done):
    expect(done.returncode == 0, done, "the training failed")
    return re.findall(r"ranks=\d+ .*param_hash=([0-9a-f]{16})", done.stdout)


def main():
    with tempfile.TemporaryDirectory(prefix="ronde_launchers_") as data:
        plain_data.write_first(IMAGES, data)
        compare(data, *sys.argv[1:])


def compare(data, folder, *jobs):
    program = [f"{folder}/{TRAINING[0]}", *TRAINING[1:], f"--data={data}"]
    ronderun = pathlib.Path(folder).resolve() / "ronderun"
    for words in jobs:
        text, *kinds = words.split("/")
        job = Job(text)
        over_mpi = param_hash(job.run(*program))
        assert len(over_mpi) == 1, f"{text}: {over_mpi} over MPI"
        if ronderun.exists():
            found = param_hash(job.run(*program, flags=("--ronderun", ronderun)))
            assert found == over_mpi, f"{text}: {over_mpi} over MPI, {found} by ronderun"
        for kind in kinds or ["hand"]:
            if kind == "ipv6" and not pathlib.Path("/proc/net/if_inet6").exists():
                print(f"{text}: this kernel has no IPv6")
                continue
            found = param_hash(job.run(LAUNCHED, kind, *program))
            assert found == over_mpi, f"{text}: {over_mpi} over MPI, {found} by {kind}"
        print(f"{text}: param_hash={over_mpi[0]} over MPI and by {', '.join(kinds or ['hand'])}")
    # Each rank says in a line that a secret is missing, and how to make one; none waits for another.
    job = Job(jobs[0].split("/")[0])
    done = job.run(LAUNCHED, "hand", f"{folder}/linear_regression", settings={"RONDE_JOB_SECRET": ""})
    expect(done.returncode != 0, done, "they met without a secret")
    lines = [line for line in done.stderr.splitlines() if "linear_regression: " in line]
    expect(lines and all("without a secret" in line and "export RONDE_JOB_SECRET=" in line for line in lines), done,
           "no line says how to make a secret")


if __name__ == "__main__":
    late.end(main)
