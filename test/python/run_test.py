#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ronde.run(): what a function returns on each rank, and what becomes of one that raises or ends."""
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import unittest
from multiprocessing.connection import Client, Listener

import numpy
import ronde


def sums(start, step=1):
    ronde.init()
    return ronde.rank(), float(ronde.allreduce(numpy.full(1, start + step * ronde.rank()), name="x", op=ronde.Sum)[0])


class Run(unittest.TestCase):  # over other hosts: test/hosts/function.py
    def test_results_are_those_of_each_rank(self):
        """O13: it is a launcher, as Horovod's."""
        self.assertEqual(ronde.run(sums, args=(10.0,), kwargs={"step": 2}, np=2), [(0, 22.0), (1, 22.0)])
        self.assertEqual(ronde.run(lambda: os.getpid() != parent, np=1), [True])

    def test_hosts_are_those_of_ronderun(self):
        self.assertEqual(ronde.run(sums, (1.0,), np=2, hosts="localhost:2"), [(0, 3.0), (1, 3.0)])

    def test_an_error_has_the_rank_and_its_traceback(self):
        def fails(which):
            ronde.init()
            if ronde.rank() == which:
                raise ValueError("a picture is lost")
            ronde.barrier()

        with self.assertRaisesRegex(ronde.RunError, "rank 1 of 2 raised:\n(.*\n)*.*ValueError: a picture is lost") as caught:
            ronde.run(fails, (1,), np=2)
        self.assertEqual(caught.exception.rank, 1)

    def test_a_rank_that_ends_has_no_result(self):
        with self.assertRaisesRegex(ronde.RunError, r"rank 0 of 2 has ended without a result \(ronderun ended with \d+"):
            ronde.run(lambda: os.kill(os.getpid(), signal.SIGKILL), np=2)

    def test_variables_and_options_reach_the_ranks(self):
        self.assertEqual(ronde.run(lambda: os.environ["OF_A_TEST"], np=2, env={"OF_A_TEST": "x"}, options=["--tag"]), ["x"] * 2)

    def test_nothing_is_left_behind(self):
        before = threading.active_count()
        ronde.run(os.getpid, np=2)
        self.assertEqual(threading.active_count(), before)

    def test_a_stranger_and_a_result_that_cannot_be_read_are_no_end(self):
        import ronde._run
        ranks = ronde._run._Ranks(1, b"work")
        with Listener(("127.0.0.1", 0), authkey=b"key") as listener:
            door = threading.Thread(target=ranks.let_in, args=(listener,), daemon=True)
            door.start()
            with socket.create_connection(listener.address) as stranger:
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it ends by a reset
            with Client(listener.address, authkey=b"key") as rank:
                rank.send_bytes(b"0")
                self.assertEqual(rank.recv_bytes(), b"work")
                rank.send_bytes(b"no pickle")
            ranks.wait()
            ronde._run._knock(listener.address)
            door.join(10)
            self.assertFalse(door.is_alive())
        with self.assertRaisesRegex(ronde.RunError, "rank 0 of 1 raised:\n(.*\n)*.*UnpicklingError"):
            ranks.results(0)

    def test_what_is_missing_is_one_line(self):
        program = "import sys, ronde; sys.modules['cloudpickle'] = None; ronde.run(print)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("ImportError: ronde.run() sends functions with cloudpickle, which is not installed", done.stderr)
        program = "import os, ronde; os.environ['PATH'] = ''; ronde.run(print)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("neither in the package nor in PATH", done.stderr)


parent = os.getpid()
if __name__ == "__main__":
    unittest.main()
