# SPDX-License-Identifier: Apache-2.0
"""A rank of ronde.run(): fetches the function, and sends what it returns or raises.

usage: python3 -m ronde._rank_of_run ADDRESS      (the key is a variable, which ronderun passes on)
"""
from __future__ import annotations

import os
import pickle
import sys
import traceback
from multiprocessing.connection import Client

from ._run import KEY, cloudpickle


def main(place: str) -> int:
    host, _, port = place.rpartition(":")
    address = (host, int(port)) if host else place
    with Client(address, authkey=os.environ.pop(KEY).encode()) as connection:
        connection.send_bytes(os.environ.get("RONDE_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")).encode())
        dumps = cloudpickle().dumps
        try:
            func, args, kwargs = pickle.loads(connection.recv_bytes())
            well, answer = True, dumps((True, func(*args, **kwargs)))
        except Exception:
            well, answer = False, dumps((False, traceback.format_exc()))
        connection.send_bytes(answer)
        try:
            connection.recv_bytes()  # it is noted: only then may this rank end, which is an error of the others
        except (EOFError, OSError):
            pass  # who asked has gone
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
