#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of check_results.py, with sources and results that are made up."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import check_results

HERE = pathlib.Path(__file__).parent
SOURCES = {
    "fusion/cuda/pack.cu": "the kernel", "fusion/cuda/pack.cuh": "its header",
    "fusion/tiles.cc": "tiles", "fusion/tiles.h": "their header",
    "collectives/cuda/engine.cc": "the plug-in", "collectives/device/plugin.h": "its interface",
}
# The very lines of test/gpu/run that take the hash.
HASH_OF = "\n".join(line for line in (HERE / "run").read_text(encoding="utf-8").split("hash_of() {")[1]
                    .split("}\n")[0].splitlines())


class CheckResults(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        for name, text in SOURCES.items():
            self.write(name, text)

    def write(self, name, text):
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def results(self, **fields):
        document = {"commit": "abc", "date": "2026-01-02T03:04:05Z", "driver": "580.1", "gpu": "NVIDIA H200",
                    "cuda": "13.0", "kernels": check_results.hash_of(self.root, check_results.KERNELS),
                    "plugin": check_results.hash_of(self.root, check_results.PLUGIN),
                    "results": {"pack": "passed", "pack_64MiB_of_copy_bandwidth": "0.93"}}
        document.update(fields)
        self.write("test/gpu/results/h200.json", json.dumps(document))

    def check(self, code, *parts):
        done = subprocess.run([sys.executable, "-B", HERE / "check_results.py", self.root],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for part in parts:
            self.assertIn(part, done.stdout)

    def test_without_results_it_is_skipped_and_says_so(self):
        self.check(check_results.SKIPPED, "no results are committed")

    def test_results_of_these_sources_pass(self):
        self.results()
        self.check(0, "h200.json: NVIDIA H200, driver 580.1", "of these sources")

    def test_a_kernel_that_has_changed_fails(self):
        for name in ("fusion/cuda/pack.cu", "fusion/cuda/new.cu", "fusion/tiles.h"):
            with self.subTest(name):
                self.results()
                before = SOURCES.get(name)
                self.write(name, "another kernel")
                self.check(1, "older than the kernels", "run test/gpu/run")
                if before is None:
                    (self.root / name).unlink()
                else:
                    self.write(name, before)
                self.check(0)

    def test_a_kernel_that_was_renamed_fails(self):
        self.results()
        (self.root / "fusion/cuda/pack.cu").rename(self.root / "fusion/cuda/pack2.cu")
        self.check(1, "older than the kernels")

    def test_a_plugin_that_has_changed_is_said_and_passes(self):
        self.results()
        self.write("collectives/cuda/engine.cc", "another plug-in")
        self.check(0, "the plug-in around them has changed since")

    def test_results_that_failed_fail(self):
        self.results(results={"pack": "passed", "engine_nccl_2": "FAILED"})
        self.check(1, "engine_nccl_2 FAILED")

    def test_files_that_test_gpu_run_did_not_write_fail(self):
        self.write("test/gpu/results/h200.json", "{")
        self.check(1, "is no JSON")
        self.write("test/gpu/results/h200.json", '{"commit": "abc"}')
        self.check(1, "lacks date, driver, gpu, cuda, kernels, plugin, results")
        self.write("test/gpu/results/h200.json", "[]")
        self.check(1, "lacks commit")

    def test_one_of_several_is_enough_to_fail(self):
        self.results()
        self.write("test/gpu/results/other.json", "{")
        self.check(1, "of these sources", "is no JSON")

    def test_the_hash_is_the_one_of_test_gpu_run(self):
        for places in (check_results.KERNELS, check_results.PLUGIN):
            script = f'root="{self.root}"; hash_of() {{ {HASH_OF}\n}}; hash_of {" ".join(places)}'
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
            self.assertEqual(done.stdout.strip(), check_results.hash_of(self.root, places))


if __name__ == "__main__":
    unittest.main()
