#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs whose ranks end with an engine that nobody has closed: a good one ends with 0, in
which mpirun finds nothing to complain about; one that ends in mid-step, or after a failure, does not, and soon.

usage: exit.py MPIRUN WORKER
"""
import subprocess
import sys
import time


def run(mpirun, worker, how):
    began = time.monotonic()
    done = subprocess.run([mpirun, "--oversubscribe", "--allow-run-as-root", "-np", "2", worker, how],
                          capture_output=True, text=True, timeout=120, check=False)
    return done, time.monotonic() - began


def expect(condition, how, done):
    if not condition:
        sys.exit(f"{how}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def main():
    mpirun, worker = sys.argv[1:]
    for how, said in (("global", "x: 2"), ("never", "in a destructor: ok 2")):
        done, _ = run(mpirun, worker, how)
        expect(done.returncode == 0 and done.stdout.count(said) == 2 and not done.stderr, how, done)
    # What mpirun and a process of this size take anyway.
    _, usual = run(mpirun, worker, "global")
    for how, said in (("failed", "'of rank 1 alone' was given up on rank 1"),
                      ("exit", "rank 1 ended its process, by exit() or a return from main()")):
        done, took = run(mpirun, worker, how)
        expect(done.returncode != 0 and said in done.stderr, how, done)
        expect(took < usual + 20.0, f"{how} took {took:.1f} s", done)
        print(f"{how}: over in {took:.1f} s with exit code {done.returncode}")


if __name__ == "__main__":
    main()
