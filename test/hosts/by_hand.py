#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Becomes a rank that nobody's mpirun has started: test/hosts/run's mpirun only carries it to its host.

    test/hosts/run --hosts 2 --ranks 2 -- test/hosts/by_hand.py PROGRAM [ARGUMENTS...]

Everything of MPI leaves the environment; RONDE_RANK, RONDE_SIZE, RONDE_MEET and a secret take its place.
"""
import os
import sys

NETWORK = "10.213.0"  # as in run
PORT = 29500
MARKS = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "ORTE_")


def main():
    rank, size = (os.environ[f"OMPI_COMM_WORLD_{what}"] for what in ("RANK", "SIZE"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(MARKS)}
    environment.setdefault("RONDE_JOB_SECRET", "only the ranks of this test know it")
    environment.setdefault("RONDE_MEET", f"{NETWORK}.1:{PORT}")
    environment.update(RONDE_RANK=rank, RONDE_SIZE=size)
    os.execvpe(sys.argv[1], sys.argv[1:], environment)


if __name__ == "__main__":
    main()
