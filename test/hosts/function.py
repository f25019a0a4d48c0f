#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ronde.run() over two hosts, named by hosts= and by hostfile=: who runs where, and an error on the other host.

usage: function.py

It takes the place of ronderun for ./run, which starts it on the first host (with -np N --hostfile FILE OPTIONS...).
"""
import argparse
import pathlib
import shlex
import socket
import subprocess
import sys
import tempfile

import numpy
import ronde

RUN = pathlib.Path(__file__).resolve().parent / "run"


def where(start):
    ronde.init()
    total = ronde.allreduce(numpy.full(1, start + ronde.rank()), name="x", op=ronde.Sum)[0]
    return ronde.rank(), socket.gethostname(), float(total)


def fails(which):
    ronde.init()
    if ronde.rank() == which:
        raise ValueError(f"a picture is lost on {socket.gethostname()}")
    ronde.barrier()


def on_the_first_host():
    parser = argparse.ArgumentParser()
    parser.add_argument("-np", type=int)
    parser.add_argument("--hostfile")
    ours, options = parser.parse_known_args()
    options = options[:-1]  # but the command, of which there is none
    with open(ours.hostfile, encoding="utf-8") as lines:
        hosts = ",".join(line.split()[0] + ":" + line.split("slots=")[1].strip() for line in lines)
    here = socket.gethostname()
    total = float(10 * ours.np + sum(range(ours.np)))
    expected = [(rank, here[:-1] + str(rank // 2 + 1), total) for rank in range(ours.np)]
    for named in ({"hostfile": ours.hostfile}, {"hosts": hosts}):
        found = ronde.run(where, (10.0,), np=ours.np, options=options, **named)
        assert found == expected, (named, found, expected)
    try:
        ronde.run(fails, (ours.np - 1,), np=ours.np, options=options, hosts=hosts)
    except ronde.RunError as error:
        assert error.rank == ours.np - 1 and f"lost on {expected[-1][1]}" in str(error), error
    else:
        raise AssertionError("a rank that raised was no error")
    print(f"a function ran on {ours.np} ranks of {expected[-1][1][-1]} hosts")


def main():
    if len(sys.argv) > 1:
        return on_the_first_host()
    with tempfile.TemporaryDirectory() as folder:
        starter = pathlib.Path(folder) / "starter"
        starter.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-B", __file__])} "$@"\n', encoding="utf-8")
        starter.chmod(0o755)
        line = [sys.executable, "-B", RUN, "--hosts", "2", "--ranks", "2", "--ronderun", starter, "--", "true"]
        return subprocess.run(line, check=False, timeout=200).returncode


if __name__ == "__main__":
    sys.exit(main())
