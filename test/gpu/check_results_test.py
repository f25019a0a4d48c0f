#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of check_results.py, with sources and results that are made up, and of run, with such programs."""

import json
import os
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
                    "results": {"pack": "passed", **dict.fromkeys(check_results.BUDGET, "0.93")}}
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

    def test_a_slow_kernel_is_not_kept(self):
        slow = check_results.BUDGET[0]
        self.results(results={**dict.fromkeys(check_results.BUDGET, "0.93"), slow: "0.89"})
        self.check(1, f"less than 90% of the copy bandwidth in {slow}")

    def test_a_figure_that_is_not_there_fails(self):
        self.results(results={check_results.BUDGET[0]: "0.93"})
        self.check(1, ", ".join(sorted(check_results.BUDGET[1:])) + " was not measured")

    def test_results_of_these_sources_pass(self):
        self.results()
        self.check(0, "h200.json: NVIDIA H200, driver 580.1", "of these sources")

    def test_a_kernel_that_has_changed_is_said_and_passes(self):
        for name in ("fusion/cuda/pack.cu", "fusion/cuda/new.cu", "fusion/tiles.h"):
            with self.subTest(name):
                self.results()
                before = SOURCES.get(name)
                self.write(name, "another kernel")
                self.check(0, "OLDER than the kernels", "run test/gpu/run")
                if before is None:
                    (self.root / name).unlink()
                else:
                    self.write(name, before)
                self.check(0, "of these sources")

    def test_a_kernel_that_was_renamed_is_another(self):
        self.results()
        (self.root / "fusion/cuda/pack.cu").rename(self.root / "fusion/cuda/pack2.cu")
        self.check(0, "OLDER than the kernels")

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


class Run(unittest.TestCase):
    """test/gpu/run itself, with programs that only say what the real ones would."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.program("cmake", "exit 0")
        for name in ("pack", "ranks", "hazards", "engines", "speed"):
            self.program(f"build/bin/test/gpu_{name}", f"echo 'result {name}_one=passed'; echo chatter")
        cache = self.folder / "build/CMakeCache.txt"
        cache.write_text("RONDE_NCCL_INCLUDE_DIR:PATH=/opt/nccl/include\n", encoding="utf-8")
        compiler = self.folder / "build/CMakeFiles/3.25.1/CMakeCUDACompiler.cmake"
        compiler.parent.mkdir(parents=True)
        compiler.write_text('set(CMAKE_CUDA_COMPILER_VERSION "13.0.48")\n', encoding="utf-8")

    def program(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("#!/bin/sh\n" + text + "\n", encoding="utf-8")
        file.chmod(0o755)

    def run_it(self, code):
        path = f"{self.folder}:{os.environ['PATH']}"
        done = subprocess.run([HERE / "run", "--build", self.folder / "build"], env=dict(os.environ, PATH=path),
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_its_results_are_those_of_these_sources(self):
        self.run_it(0)
        file = self.folder / "build/results.json"
        document = json.loads(file.read_text(encoding="utf-8"))
        self.assertEqual(list(document), list(check_results.FIELDS[:2]) + ["driver", "gpu", "cuda", "kernels",
                                                                          "plugin", "results"])
        self.assertEqual(document["cuda"], "13.0.48")
        self.assertEqual(document["results"]["speed/speed_one"], "passed")
        self.assertEqual(document["results"]["engines"], "passed")
        root = HERE.parents[1]
        self.assertEqual(document["kernels"], check_results.hash_of(root, check_results.KERNELS))
        self.assertEqual(document["plugin"], check_results.hash_of(root, check_results.PLUGIN))

    def test_a_failure_is_one_and_is_written_down(self):
        self.program("build/bin/test/gpu_ranks", "echo 'result two=FAILED'; exit 1")
        self.run_it(1)
        results = json.loads((self.folder / "build/results.json").read_text(encoding="utf-8"))["results"]
        self.assertEqual((results["ranks/two"], results["ranks"], results["engines"]), ("FAILED", "FAILED", "passed"))

    def test_without_a_gpu_it_says_so(self):
        self.program("build/bin/test/gpu_pack", "exit 77")
        done = self.run_it(77)
        self.assertIn("there is no GPU", done.stderr)
        self.assertFalse((self.folder / "build/results.json").exists())


if __name__ == "__main__":
    unittest.main()
