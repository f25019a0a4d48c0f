#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs whose ranks end with an engine that nobody has closed: a good one ends with 0, in
which mpirun finds nothing to complain about; one that ends in mid-step, or after a failure, does not, and soon.

usage: exit.py MPIRUN WORKER
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position


def run(mpirun, worker, how):
    return late.run([mpirun, "--oversubscribe", "--allow-run-as-root", "-np", "2", worker, how], 120)


def expect(condition, how, done):
    if not condition:
        sys.exit(f"{how}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def main():
    mpirun, worker = sys.argv[1:]
    for how, said in (("global", "x: 2"), ("never", "in a destructor: ok 2")):
        done = run(mpirun, worker, how)
        expect(done.returncode == 0 and done.stdout.count(said) == 2 and not done.stderr, how, done)
    # What mpirun and a process of this size take anyway.
    usual = run(mpirun, worker, "global").seconds
    for how, said in (("failed", "'of rank 1 alone' was given up on rank 1"),
                      ("exit", "rank 1 ended its process, by exit() or a return from main()")):
        done = run(mpirun, worker, how)
        expect(done.returncode != 0 and said in done.stderr, how, done)
        late.at_most(done.seconds, usual + 20.0, how)
        print(f"{how}: over in {done.seconds:.1f} s with exit code {done.returncode}")


if __name__ == "__main__":
    late.end(main)
