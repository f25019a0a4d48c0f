#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that another launcher than its MPI's has started must not train alone, and a tool that a
rank starts can be a job of one.

    launched.py MPIRUN PROGRAM

PROGRAM is linear_regression, whose last line has ranks=N.
"""
import os
import sys

from programs import ROOT, expect, late

LIMIT = 120  # seconds; a refusal takes less than one on an idle machine
MARKS = ("OMPI_", "PMI", "SLURM_", "WORLD_SIZE", "RANK", "RONDE_")


def run(line, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(MARKS)}
    return late.run(line, LIMIT, env={**environment, **ROOT, **variables})


def main():
    mpirun, program = sys.argv[1:]
    # The ranks of srun and torchrun meet by themselves (start/start.py), where these say how.
    for words, variables in (
            (("MPICH", "PMI_SIZE=4", "Open MPI", "RONDE_ALONE=1"), {"PMI_RANK": "1", "PMI_SIZE": "4"}),
            (("Slurm", "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_NODELIST is not set"),
             {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}),
            (("PMIx", "PMIX_RANK=1", "Open MPI", "RONDE_ALONE=1"), {"PMIX_RANK": "1"}),
            (("torchrun", "WORLD_SIZE=2", "MASTER_ADDR is not set"), {"RANK": "0", "WORLD_SIZE": "2"})):
        done = run([program], **variables)
        expect(done.returncode != 0, done, "it trained alone")
        expect(all(word in done.stderr for word in words), done, "the line says less")
        done = run([program], **variables, RONDE_ALONE="1")
        expect(done.returncode == 0 and "ranks=1" in done.stdout, done, "off makes no job of one")

    # A shell in an allocation, a job of one inside it, and a job of two.
    allocation = {"SLURM_JOB_UID": "0", "SLURM_NTASKS": "4"}
    done = run([program], **allocation)
    expect(done.returncode == 0 and "ranks=1" in done.stdout, done, "refused without a launcher")
    for ranks in ("1", "2"):
        done = run([mpirun, "--oversubscribe", "-np", ranks, program], SLURM_STEP_NUM_TASKS="4", SLURM_PROCID="0")
        expect(done.returncode == 0 and f"ranks={ranks}" in done.stdout, done, "refused under its own mpirun")

    done = run([mpirun, "--oversubscribe", "-np", "2", "-x", "RONDE_MPI=off", program])
    expect(done.returncode == 0 and done.stdout.count("ranks=1") == 2, done, "off is not heard")


if __name__ == "__main__":
    late.end(main)
