#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A job that nobody's mpirun has introduced, behind firewalls that let in the meeting point's port and those of
RONDE_PORTS: on each host one for the leader and one for each rank's UCX, of each of two engines.

usage: ports.py WORKER      (engines_worker)
"""
import pathlib
import shutil
import sys
import tempfile

from hosts_job import Job, expect, late

LAUNCHED = pathlib.Path(__file__).resolve().parent / "launched"
MEETING = 29511  # in launched
# Of every rank's host, before its program: who begins a connection to any other port is not answered.
WALL = "table inet wall { chain input { type filter hook input priority 0; tcp flags & (syn | ack) == syn " \
       f"tcp dport != {{ {MEETING}, 29600-29605 }} drop; }}; }}"


def walled(worker, **settings):
    with tempfile.TemporaryDirectory(prefix="ronde_ports_") as folder:
        return Job("2:2").run("sh", "-c", 'nft "$0" && exec "$@"', WALL, LAUNCHED, "hand", worker, "point", folder,
                              settings={"RONDE_TRANSPORT": "ucx", **settings}, whole="RONDE_PORTS" in settings)


def expect_refused(done, text):
    expect(done.returncode not in (0, 124, 134, 139) and text in done.stderr, done, f"nobody says: {text}")
    late.at_most(done.seconds, 40, "the failure")


def main():
    if shutil.which("nft") is None:
        print("there is no nft")
        sys.exit(late.SKIPPED)
    worker = sys.argv[1]
    done = walled(worker, RONDE_PORTS="29600-29605")  # exactly enough
    expect(done.returncode == 0 and done.stdout.count("two engines are right\n") == 4, done, "failed at its own ports")
    expect_refused(walled(worker, RONDE_PORTS="29600-29601"), "none of the 2 ports of RONDE_PORTS=29600-29601 can be used")
    # Elsewhere nobody can be reached.
    expect_refused(walled(worker, RONDE_START_TIMEOUT_SECONDS="6"), "check the firewall between them (RONDE_PORTS)")


if __name__ == "__main__":
    late.end(main)
