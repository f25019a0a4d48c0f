#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills or stops a rank somewhere in a stream of prepared calls, so many times, of 2 to 4 ranks and 8 or 4,096 bytes drawn
at random, as survivors.py and standstill.py do it once. CI runs survivors.py and standstill.py alone.

    random_prepared.py MPIRUN WORKER KILLS STOPS [SEED]
"""
import random
import sys
import time

import standstill
import survivors
from job import late


def main():
    mpirun, worker, kills, stops = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else time.time_ns() % 1_000_000
    print(f"seed {seed}")
    random.seed(seed)
    which = ["kill"] * kills + ["stop"] * stops
    random.shuffle(which)
    for i, fault in enumerate(which):
        ranks = random.randint(2, 4)
        victim = random.randrange(ranks)
        size = random.choice(("8", "4096", "8,4096"))
        print(f"{i + 1} of {len(which)}: ", end="")
        if fault == "kill":
            survivors.kill_one(mpirun, worker, "prepared", size, ranks, victim, in_place=1, how="")
        else:
            standstill.stop_for_good(mpirun, worker, "prepared", ranks, victim, size)
    print(f"{kills} ranks killed and {stops} stopped: every survivor failed and named the rank")


if __name__ == "__main__":
    late.end(main)
