#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is red stays red on its way out: .ci/run over a ./dev that does nothing, and the tests' part of ./dev over a
ctest that does nothing.

    commands_test.py
"""
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Fails where its words are among those of RED; notes what it was asked.
DEV = """#!/bin/sh
echo "$*" >>asked
case "$*" in fresh-obstacle) exit 0 ;; esac
if [ "$1" = test-summary ]; then printf '%s\\n' "${FAILED:-}"; fi
case "$RED" in *"<$*>"*) echo "red: $*"; exit 8 ;; esac
"""
# As ctest, with one test that has failed, or none.
CTEST = """#!/bin/sh
while [ $# -gt 0 ]; do
  if [ "$1" = --output-junit ]; then report=$2; fi
  if [ "$1" = --test-dir ]; then build=$2; fi
  shift
done
mkdir -p "$build/Testing/Temporary"
echo "the log" >"$build/Testing/Temporary/LastTest.log"
if [ -n "$BROKEN" ]; then exit 3; fi
echo '<testsuite><testcase name="one" status="run"/></testsuite>' >"$report"
case "$build" in
  $RED) echo "50% tests passed, 1 tests failed out of 2"; exit 8 ;;
  *) echo "100% tests passed, 0 tests failed out of 2" ;;
esac
"""
PARTS = """
set -euo pipefail
say() { printf '==> %s\\n' "$*"; }
timed() { "$@"; }
die() { echo "./dev: $*" >&2; exit 1; }
need_packages() { :; }
need_preset() { :; }
build_everything() { if [[ $1 == "${RED_BUILD:-}" ]]; then return 2; fi; }
cmake() { :; }
BUILD_PACKAGES=() CACHE_PACKAGES=() DATA_PACKAGES=() TEST_PACKAGES=() TORCH_PACKAGES=() FULL_PACKAGES=()
source test/presets.sh
test_parts "$@"
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def run_in(self, words, **names):
        done = subprocess.run(list(map(str, words)), cwd=self.root, env={**os.environ, **names}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        return done.returncode, done.stdout

    def ci(self, red):
        program(self.root / "dev", DEV)
        (self.root / ".ci").mkdir(exist_ok=True)
        shutil.copy(ROOT / ".ci" / "run", self.root / ".ci" / "run")
        asked = self.root / "asked"
        asked.write_text("")
        code, said = self.run_in([self.root / ".ci" / "run"], RED=red)
        return code, said, asked.read_text().splitlines()

    def test_ci_is_green_where_all_is(self):
        code, said, asked = self.ci("")
        self.assertEqual(code, 0, said)
        self.assertNotIn("FAILED", said)
        self.assertEqual(sorted(asked), sorted(
            ["setup", "fresh-obstacle", "fresh", "lint", "test-build release", "test-build torch", "test-build asan",
             "test-run release", "test-build tsan", "test-run torch", "test-run asan", "test-run tsan",
             "test-again release torch asan tsan", "compiler-cache-report",
             "test-summary release torch asan tsan"]))
        self.assertEqual(asked[-1], "test-summary release torch asan tsan")

    def test_ci_is_red_where_one_step_is(self):
        for step in ("setup", "lint", "fresh", "test-build release", "test-build torch", "test-build asan", "test-build tsan",
                     "test-run release", "test-run torch", "test-run asan", "test-run tsan",
                     "test-again release torch asan tsan"):
            code, said, asked = self.ci(f"<{step}>")
            self.assertEqual(code, 1, (step, said))
            lane = step.replace("test-build", "build").replace(" ", "-")
            self.assertRegex(said, rf"\./dev {step} \(exit code 8\)|{lane} \(exit code 8\)")
            if step.startswith("test-build"):
                part = step.rpartition(" ")[2]
                self.assertNotIn(f"test-run {part}", asked, "it was not built")
            elif step != "setup":
                self.assertIn("test-run tsan", asked, "one that fails does not hide what the others find")

    def parts(self, *words, **names):
        shutil.rmtree(self.root / "test", ignore_errors=True)
        for file in ("presets.sh", "second_tries.py", "support/late.py"):
            (self.root / "test" / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / "test" / file, self.root / "test" / file)
        for build in ("release", "asan"):
            (self.root / "build" / build).mkdir(parents=True, exist_ok=True)
        program(self.root / "bin" / "ctest", CTEST)
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        return self.run_in(["bash", "-c", PARTS, "dev", *words], PATH=path, **{"RED": "none", "BROKEN": "", **names})

    def test_parts_are_green_where_all_is(self):
        code, said = self.parts("release", "asan")
        self.assertEqual(code, 0, said)
        self.assertEqual(said.splitlines()[-1], "100% tests passed, 0 tests failed out of 2")
        self.assertNotIn("FAILED", said)

    def test_parts_are_red_where_a_test_is(self):
        for red in ("build/release", "build/asan"):
            code, said = self.parts("release", "asan", RED=red)
            self.assertEqual(code, 8, said)
            self.assertIn("50% tests passed", said)
            self.assertIn("once more: the tests of release", said)

    def test_parts_are_red_where_ctest_breaks_off(self):
        code, said = self.parts("release", BROKEN="yes")
        self.assertNotEqual(code, 0, said)
        self.assertIn("FAILED: build/release.tests.log has no summary of ctest", said)

    def test_a_part_that_there_is_not_is_named(self):
        code, said = self.parts("release", "nope")
        self.assertEqual(code, 1, said)
        self.assertIn("unknown part 'nope': use release, torch, ", said)
        self.assertNotIn("tests passed", said)

    def test_parts_are_red_where_a_build_is(self):
        code, said = self.parts("release", "asan", RED_BUILD="asan")
        self.assertNotEqual(code, 0, said)


if __name__ == "__main__":
    sys.exit(unittest.main())
