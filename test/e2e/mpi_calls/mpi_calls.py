#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the MPI calls of jobs on one host, by phase: none between the opening and the closing of the
engines, whatever operations run. The ring, which moves its data over MPI, shows that calls are counted,
and a look at the plug-in that none can pass by.

usage: mpi_calls.py MPIRUN PROGRAM PLUGIN COUNTER
"""
import os
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

PHASES = ("opening", "working", "closing")
SECONDS = 120


def symbols(library, which):
    listing = subprocess.run(["nm", "-D", which, library], capture_output=True, text=True, check=True)
    return set(re.findall(r"\b(P?MPIX?_\w+)", listing.stdout))


def check_lists(library, counter):
    wanted = symbols(library, "--undefined-only")
    counted = symbols(counter, "--defined-only")
    if not wanted:
        sys.exit(f"{library} imports nothing of MPI: is this the right file?")
    if wanted != counted:
        sys.exit("mpi_call_counter.cc does not have the MPI functions that the plug-in imports. "
                 f"Missing: {sorted(wanted - counted)}; too many: {sorted(counted - wanted)}")
    print(f"the plug-in imports {len(wanted)} MPI functions, all of them are counted")


def run(command, environment):
    settings = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    settings.update(environment)
    done = late.run(command, SECONDS, env=settings)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode}: {' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return dict(re.findall(r"^(rank \d+ \w+): (.*)$", done.stdout, re.MULTILINE))


def check(mpirun, program, ranks, algorithm):
    start = [mpirun, "--bind-to", "none", "--oversubscribe", "-np", str(ranks)] if ranks > 1 else []
    layout = ["single"] if algorithm == "ring" else []  # then every rank counts as a host
    calls = run([*start, program, *layout], {"RONDE_ALGORITHM": algorithm})
    print(f"--- {ranks} ranks, {algorithm}")
    for phase in PHASES:
        for rank in range(ranks):
            key = f"rank {rank} {phase}"
            if key not in calls:
                sys.exit(f"nothing was said about {key}")
            print(f"{key}: {calls[key] or 'no call'}")
            called = calls[key] != ""
            if phase != "working" and ranks > 1 and not called:
                sys.exit(f"{key}: no call was counted, but there must be some")
            if phase == "working" and called != (algorithm == "ring" and ranks > 1):
                sys.exit(f"{key}, {algorithm}: {calls[key] or 'no MPI call was counted'}")


def main():
    mpirun, program, library, counter = sys.argv[1:5]
    check_lists(library, counter)
    check(mpirun, program, 1, "auto")
    for ranks in (2, 4):
        check(mpirun, program, ranks, "auto")
    check(mpirun, program, 2, "ring")


if __name__ == "__main__":
    late.end(main)
