#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""RONDE_ALGORITHM as a user meets it: a name that Ronde does not know is one line that lists those it
knows, alone and under mpirun; what was chosen, and why, can be printed, and what a probe chose too.

usage: algorithm.py MPIRUN PROGRAM      (PROGRAM: linear_regression)
"""
import re
import sys

from programs import expect, late, start

SECONDS = 120


def run(mpirun, program, ranks, **settings):
    line = [program, "--steps", "3"]
    if ranks > 1:
        line = [mpirun, "--bind-to", "none", "--oversubscribe", "-np", str(ranks), *line]
    done = start(line, SECONDS, settings)
    done.lines = [text for text in done.stderr.splitlines()
                  if text.startswith(("linear_regression: ", "ronde["))]
    return done


def check_unknown(mpirun, program):
    for ranks in (1, 3):
        for name in ("fastest", " ", "Ring"):
            done = run(mpirun, program, ranks, RONDE_ALGORITHM=name)
            expect(done.returncode not in (0, 124, 134, 139), done, "expected an orderly failure")
            expect(len(done.lines) == 1, done, "expected one line for all ranks")
            valid = re.search(r": use one of: ([a-z ]+)", done.lines[0])
            expect(f"RONDE_ALGORITHM={name} is not valid" in done.lines[0], done, "what is wrong?")
            expect(valid and {"auto", "ring"} <= set(valid[1].split()), done, "what is valid?")
            expect(len(done.lines[0]) < 200, done, "the line is long")
    print(done.lines[0])


def check_chosen(mpirun, program):
    cases = [(1, "auto", "the board"), (2, "auto", "the board, since all ranks share this host"),
             (2, "ring", "RONDE_ALGORITHM"), (3, "ring", "ring")]
    for ranks, algorithm, why in cases:
        done = run(mpirun, program, ranks, RONDE_ALGORITHM=algorithm, RONDE_LOG_LEVEL="info")
        expect(done.returncode == 0, done, "the job failed")
        chosen = [text for text in done.lines if "data moves over " in text]
        expect(len(chosen) == ranks, done, "expected a line of each rank that says what was chosen")
        for text in chosen:
            expect(why in text, done, f"expected {why!r} in: {text}")
        print(chosen[0])
        silent = run(mpirun, program, ranks, RONDE_ALGORITHM=algorithm)
        expect(silent.returncode == 0 and not silent.lines, silent, "it says more than it was asked")


def check_probe(mpirun, program):
    """Ranks that share a host find out how to cut windows, unless the settings say it."""
    size, stores = {"RONDE_PIECE_BYTES": "4096"}, {"RONDE_STORES": "streaming"}
    for settings, compared in (({}, "8"), (stores, "4"), (size, "2"), ({**size, **stores}, None)):
        done = run(mpirun, program, 2, RONDE_LOG_LEVEL="info", **settings)
        chosen = [text for text in done.lines if "data moves over " in text]
        expect(done.returncode == 0 and len(chosen) == 2, done, "expected a line of each rank")
        found = {match and match[1] for match in (re.search(r"the best of (\d+) here", text)
                                                  for text in chosen)}
        expect(found == {compared}, done, f"expected a choice among {compared}")
        expect(len({text.partition("data moves ")[2] for text in chosen}) == 1, done, "the ranks differ")


def check_ranks_differ(mpirun, program):
    line = [mpirun, "--bind-to", "none", "--oversubscribe", "-np", "1", "-x", "RONDE_ALGORITHM=auto",
            program, ":", "-np", "1", "-x", "RONDE_ALGORITHM=ring", program]
    done = start(line, SECONDS)
    expect(done.returncode != 0, done, "ranks with different algorithms were let through")
    expect("RONDE_ALGORITHM" in done.stderr, done, "nothing names the setting")


def main():
    mpirun, program = sys.argv[1:3]
    check_unknown(mpirun, program)
    check_chosen(mpirun, program)
    check_probe(mpirun, program)
    check_ranks_differ(mpirun, program)


if __name__ == "__main__":
    late.end(main)
