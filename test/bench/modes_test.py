#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what modes.py makes of the lines of its programs: the table says of each number of bytes where it is from."""

import contextlib
import io
import pathlib
import tempfile
import unittest
import unittest.mock

import modes

RING = "step 0: loss 2.0\nstep 25: loss 1.0\nranks=2 test_accuracy=0.8000 seconds=2.000 images_per_second=1000\n"
SERVED = ("step 1: loss 2.0\nstep 26: loss 1.0\nranks=2 test_accuracy=0.7000 seconds=4.000 images_per_second=500 "
          "mode=async staleness=0:10,1:30 chief_bytes_per_step=814160\n")
WORDS = {7: "seven", 8: "eight", 9: "nine", 10: "ten"}


def run_main(*arguments):
    """What main() prints, with programs that print the same in each run, and the picture."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out:
        picture = pathlib.Path(folder) / "modes.svg"
        with unittest.mock.patch.multiple(modes, run_ring=lambda *_: RING, run_central=lambda *_: RING,
                                          run_servers=lambda *_, **__: SERVED), \
                unittest.mock.patch("sys.argv", ["modes.py", "--svg", str(picture), *arguments]):
            modes.main()
        return out.getvalue(), picture.read_text(encoding="utf-8")


class Table(unittest.TestCase):
    def rows(self):
        return {line[:20].strip(): line[49:69].strip() for line in run_main()[0].splitlines()}

    def test_each_number_of_bytes_says_where_it_is_from(self):
        rows = self.rows()
        self.assertEqual(rows["ring"], "814160 computed")  # each way as many bytes as the parameters have
        self.assertEqual(rows["central storage"], "not counted")
        self.assertEqual(rows["one device"], "0")
        self.assertEqual(rows["async, chief-fed"], "814160 of the chief")
        for name in ("servers, sync", "servers, async", "servers, stale=2", "async, one slowed", "sync, one slowed"):
            self.assertEqual(rows[name], "814160", name)
        text = run_main()[0]
        for word in ("computed: ", "of the chief: ", "not counted: "):
            self.assertIn(f"\n  {word}", text)

    def test_servers_that_count_nothing_are_not_counted(self):
        with unittest.mock.patch.object(modes, "result_of", lambda text: real(text) | {"bytes": None}):
            self.assertEqual(self.rows()["servers, sync"], "not counted")

    def test_a_line_of_results_is_read(self):
        result = modes.result_of(SERVED)
        self.assertEqual((result["seconds"], result["rate"], result["accuracy"]), (4.0, 500.0, 0.7))
        self.assertEqual((result["bytes"], result["staleness"]), (814160.0, 0.75))
        self.assertIsNone(modes.result_of(RING)["bytes"])

    def test_the_picture_has_a_bar_for_each_way(self):
        picture = run_main()[1]
        self.assertEqual(picture.count('fill="#4878a8"'), len(modes.ways_of("", "", 100)))


class Help(unittest.TestCase):
    def test_it_says_how_many_ways_there_are(self):
        ways = WORDS[len(modes.ways_of("", "", 100))]
        self.assertIn(f"One job {ways} ways:", modes.__doc__)
        text = (modes.ROOT / "dev").read_text(encoding="utf-8")
        self.assertEqual(text.count(f"one job {ways} ways"), 2)


real = modes.result_of

if __name__ == "__main__":
    unittest.main()
