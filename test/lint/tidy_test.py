#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lint reads a source again whenever clang-tidy could say something new, and says what it found every time."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ("test/lint/tidy.py", "test/lint/tidy_as_compiler", "cmake/compiler_cache")

# Objects to the word BAD (and to the canary's name) in a file or what that includes, to ALONE in what is not the file
# itself, and to STRICT where the nearest .clang-tidy says strict. Keeps what it has read, and with which flags.
TIDY = """#!/bin/sh
if [ "$1" = --version ]; then echo "${TIDY_VERSION:-1}"; exit; fi
for argument; do
  if [ "$argument" = -- ]; then break; fi
  case $argument in --extra-arg=-Wp,-MD,*) list=${argument#--extra-arg=-Wp,-MD,} ;; esac
  file=$argument
done
found() { for folder in .. tidy; do if [ -e "$folder/$1" ]; then echo "$folder/$1"; return; fi; done; }
closure() {
  for one in $(sed -n 's/^#include "\\(.*\\)".*/\\1/p' "$1"); do one=$(found "$one"); echo "$one"; closure "$one"; done
}
included=$(closure "$file")
case $file in *canary*) ;; *) echo "$*" >>"$TIDY_LOG" ;; esac
echo "x.o: $file" $included >"$list"
echo "2 warnings generated."
wrong='BAD|Bad_Name'
if grep -q strict "$(dirname "$file")/.clang-tidy" 2>/dev/null; then wrong="$wrong|STRICT"; fi
! grep -EHn "$wrong" "$file" $included && ! grep -n ALONE /dev/null $included
"""


class Lint(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.outside = pathlib.Path(folder.name)
        self.tidy = self.outside / "clang-tidy"
        self.tidy.write_text(TIDY)
        self.tidy.chmod(0o755)
        self.log = self.outside / "log"
        self.environment = dict(os.environ, CCACHE_DIR=str(self.outside / "cache"), TIDY_LOG=str(self.log))
        for name in [name for name in self.environment if name.startswith("CCACHE_") and name != "CCACHE_DIR"]:
            del self.environment[name]
        self.root = self.tree("one")

    def tree(self, name):
        root = self.outside / name
        for part in PARTS:
            (root / part).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / part, root / part)
        (root / "base").mkdir()
        (root / "headers").mkdir()
        (root / "build").mkdir()
        (root / "base/x.cc").write_text('#include "base/x.h"\n')
        (root / "base/x.h").write_text("// a header\n")
        (root / ".clang-tidy").write_text("Checks: all\n")
        self.flags(root, "-O3")
        return root

    def flags(self, root, flags):
        source = str(root / "base/x.cc")
        (root / "build/compile_commands.json").write_text(json.dumps([
            {"directory": str(root / "build"), "file": source, "command": f"g++ -I{root} {flags} -o x.o -c {source}"}]))

    def several(self, root=None, **texts):
        """A tree in which base/<name>.cc has that text: the names of the sources."""
        root = root or self.root
        for name, text in texts.items():
            (root / f"base/{name}.cc").write_text(text)
        names = [str(root / f"base/{name}.cc") for name in texts]
        (root / "build/compile_commands.json").write_text(json.dumps([
            {"directory": "build", "file": name, "command": f"g++ -O3 -o x.o -c {name}"} for name in names]))
        return [f"base/{name}.cc" for name in texts]

    def lint(self, root=None, sources=("base/x.cc",)):
        """The exit code, what it said, and how many sources clang-tidy has read for it."""
        self.log.write_text("")
        root = root or self.root
        command = [sys.executable, "-B", "test/lint/tidy.py", str(self.tidy), "build", *sources]
        result = late.run(command, 240, cwd=root, env=self.environment, stderr=subprocess.STDOUT)
        return result.returncode, result.stdout, len(self.log.read_text().splitlines())

    def clean(self, reads, root=None):
        self.assertEqual(self.lint(root), (0, "", reads))

    def test_a_source_without_findings_is_read_once_in_any_clone(self):
        self.clean(1)
        self.clean(0)
        self.clean(0, self.tree("two"))

    def test_a_finding_is_told_each_time_and_nothing_else(self):
        (self.root / "base/x.cc").write_text("BAD\n")
        for _ in range(2):
            code, said, reads = self.lint()
            self.assertEqual((code, reads >= 1), (1, True))
            self.assertIn("base/x.cc:1:BAD", said)
            self.assertNotIn("generated", said)

    def test_whatever_may_change_the_answer_is_looked_at(self):
        self.clean(1)
        changes = [
            lambda: (self.root / "base/x.cc").write_text('#include "base/x.h"\n// NOLINT\n'),
            lambda: (self.root / "base/x.h").write_text("// another comment\n"),
            lambda: (self.root / ".clang-tidy").write_text("Checks: some\n"),
            lambda: (self.root / "base/.clang-tidy").write_text("Checks: none\n"),
            lambda: (self.root / "headers/.clang-tidy").write_text("Checks: other\n"),
            lambda: self.flags(self.root, "-O3 -DX"),
            lambda: self.environment.update(TIDY_VERSION="2"),
        ]
        for change in changes:
            change()
            self.clean(1)
            self.clean(0)
        (self.root / "base/x.h").write_text("BAD\n")
        self.assertEqual(self.lint()[0], 1)

    def test_a_header_of_another_clone_does_not_count(self):
        self.clean(1)
        other = self.tree("two")
        (other / "base/x.h").write_text("BAD\n")
        self.assertEqual(self.lint(other)[0], 1)

    def test_a_source_that_is_not_compiled_here_is_read_alone_with_its_neighbours_flags(self):
        self.flags(self.root, "-O3 -DNEAR")
        (self.root / "base/y.cc").write_text("int y;\n")
        self.assertEqual(self.lint(sources=("base/x.cc", "base/y.cc")), (0, "", 2))
        self.assertRegex(self.log.read_text(), r"(?m)base/y\.cc -- .*-DNEAR")

    def test_sources_of_a_folder_are_read_as_one_whatever_their_order(self):
        sources = self.several(a="int a;\n", b="int b;\n", c="int c;\n")
        self.assertEqual(self.lint(sources=sources), (0, "", 1))
        other = self.tree("two")
        self.several(other, a="int a;\n", b="int b;\n", c="int c;\n")
        self.assertEqual(self.lint(other, sources=sources[::-1]), (0, "", 0))

    def test_a_finding_among_them_is_that_of_its_source(self):
        sources = self.several(a="int a;\n", b="BAD\n", c="int c;\n")
        code, said, _ = self.lint(sources=sources)
        self.assertEqual(code, 1)
        self.assertIn("base/b.cc:1:BAD", said)
        self.assertNotIn("base/a.cc", said)

    def test_rules_of_a_folder_hold_for_what_is_read_as_one(self):
        sources = self.several(a="int a;\n", b="STRICT\n")
        self.assertEqual(self.lint(sources=sources)[0], 0)
        (self.root / "base/.clang-tidy").write_text("strict\n")
        self.assertEqual(self.lint(sources=sources)[0], 1)

    def test_what_is_wrong_only_among_others_is_no_finding(self):
        sources = self.several(a="ALONE\n", b="int b;\n")
        for _ in range(2):
            self.assertEqual(self.lint(sources=sources)[:2],
                             (0, "read alone each time, since names in them meet: base/a.cc base/b.cc\n"))

    def test_programs_and_sources_of_the_global_namespace_are_read_alone(self):
        sources = self.several(a="int a;\n", b="int b;\n", c="int main() {}\n", d='#include <x>\nusing a::b;\n',
                               e="namespace a {\nusing a::b;\n}\n")
        self.assertEqual(self.lint(sources=sources), (0, "", 3))

    def test_settings_of_ccache_do_not_make_it_silent(self):
        (self.root / "base/x.cc").write_text("BAD\n")
        for name, value in (("COMPILER", "true"), ("PREFIX", "true"), ("NODEPEND", "1"), ("DISABLE", "1")):
            with self.subTest(name):
                self.environment["CCACHE_" + name] = value
                self.assertIn("base/x.cc:1:BAD", self.lint()[1])
                del self.environment["CCACHE_" + name]
        (self.outside / "cache").mkdir(exist_ok=True)
        (self.outside / "cache/ccache.conf").write_text("prefix_command = true\n")
        code, said, _ = self.lint()
        self.assertEqual((code, "ccache did not call clang-tidy" in said), (1, True))

    def test_a_clang_tidy_that_objects_to_nothing_is_noticed(self):
        self.tidy.write_text(TIDY.replace("|Bad_Name", ""))
        code, said, _ = self.lint()
        self.assertEqual((code, "did not object to a bad name" in said), (1, True))


if __name__ == "__main__":
    unittest.main()
