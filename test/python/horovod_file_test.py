#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests how horovod_file.py counts the tests of a file, with and without the packages that such a file imports."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

FILE = """\
import unittest
import pytest
import torch
from packaging import version
import horovod.torch as hvd
from common import temppath

class TorchTests(unittest.TestCase):
    def test_passes(self):
        hvd.init()
        self.assertEqual(hvd.allreduce(torch.ones(2)).tolist(), [1, 1])
        self.assertTrue(version.parse("1.13.0a0+git") < version.parse("2.1"))
        with temppath() as path:
            self.assertTrue(path)

    def test_joins(self):
        hvd.init()
        self.assertEqual(hvd.join(), 0)

    def test_horovod_join_broadcast(self):
        hvd.init()
        try:
            hvd.broadcast(torch.ones(2), 0)
            assert False, "no error"
        except RuntimeError:
            self.assertEqual(hvd.join(), 0)

    @pytest.mark.skip(reason="an issue of Horovod's")
    def test_elastic(self):
        self.assertTrue(hvd.elastic)

    @unittest.skip
    def test_never(self):
        pass

    @pytest.mark.skipif(True, reason="no such machine")
    def test_elsewhere(self):
        pass
"""
# Where a folder of this is in the path before all else, Python finds neither package.
MISSING = "raise ImportError(__name__)"


def counts(text, *missing):
    """The exit code and the last line of horovod_file.py for a file of this text."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "test_file.py"
        path.write_text(text, encoding="utf-8")
        for name in missing:
            (pathlib.Path(folder) / f"{name}.py").write_text(MISSING, encoding="utf-8")
        program = pathlib.Path(__file__).resolve().parent / "horovod_file.py"
        where = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
        done = subprocess.run([sys.executable, "-B", program, path], capture_output=True, text=True, timeout=100,
                              check=False, env={**os.environ, "PYTHONPATH": where})
        return done.returncode, (done.stdout.splitlines() or [done.stderr.strip()])[-1]


class Counts(unittest.TestCase):
    def test_what_is_missing_and_skipped_is_told_from_what_fails(self):
        right = (0, "rank=0 tests=6 passed=2 failed=0 broken_by_the_file=0 result_for_error=1 not_implemented=1 skipped=2")
        self.assertEqual(counts(FILE), right)
        self.assertEqual(counts(FILE, "pytest", "packaging"), right)

    def test_a_missing_module_is_one_line(self):
        code, line = counts("import parameterized\n" + FILE, "parameterized")
        self.assertEqual(code, 1)
        self.assertRegex(line, "^/.*test_file.py cannot be loaded: parameterized: install what it imports for /")

    def test_what_fails_ends_with_1(self):
        text = FILE.replace("[1, 1]", "[1, 2]")
        self.assertEqual(counts(text), (1, "rank=0 tests=6 passed=1 failed=1 broken_by_the_file=0 result_for_error=1 not_implemented=1 skipped=2"))


if __name__ == "__main__":
    unittest.main()
