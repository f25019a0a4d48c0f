#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that the checks of the pages find what they are for, and nothing in pages that are right."""

import pathlib
import tempfile
import unittest

import pages
import readme

CONFIG = """
constexpr auto kSettings = std::to_array<Setting>({
    {"RONDE_ALGORITHM", &Config::algorithm, "auto", "auto ring", 0, 0, true,
     "how bytes move; named, every rank "
     "counts"},
    {"RONDE_PIECES", &Config::pieces, "0", "", 0, kGibi, true, "how many pieces", 64},
    {"RONDE_INTERFACE", &Config::interfaces, "", "", 0, 0, false, "the networks: names"},
});
"""
SETTINGS = "| setting | default | meaning |\n"
README = f"""# Title

## Map

```
base/            status
collectives/     how
  board/         memory
```

## Use

See [the reference](bindings/cpp/README.md#settings), `base/config.cc` and `base/<any>.h`.

```cpp
```

{SETTINGS}
the end
"""
REFERENCE = f"# Reference\n\n## Settings\n\n{SETTINGS}"


class Tree(unittest.TestCase):
    """Each test has a repository of its own, in which everything is right at first."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("base/config.cc", CONFIG)
        self.write("collectives/board/board.h", "")
        self.write("bindings/cpp/README.md", REFERENCE)
        self.write("examples/readme_snippet.cc", "// SPDX\n\nint main() {}\n")
        self.write("examples/supervised_loop.cc", "// SPDX\n\nstatic int train() {\n  step();\n}\n\nint main() {}\n")
        self.write("bindings/trainer/README.md",
                   "# Core\n\nIn about 1,000\nlines.\n\n```cpp\nstatic int train() {\n}\n```\n")
        self.write("bindings/trainer/core.cc", 1000 * "\n")
        map_end = "  board/         memory\n"
        self.write("README.md", README.replace(map_end, map_end + "bindings/        c\nexamples/        e\n"))
        for page, text in readme.made(self.root).items():
            self.write(page, text)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def change(self, path, old, new):
        text = (self.root / path).read_text(encoding="utf-8")
        self.assertIn(old, text)
        self.write(path, text.replace(old, new))


class Readme(Tree):
    def test_pages_that_are_right_have_no_problems(self):
        self.assertEqual(readme.check(self.root), [])
        text = (self.root / "README.md").read_text(encoding="utf-8")
        self.assertIn("```cpp\nint main() {}\n```\n", text)
        self.assertIn("| `RONDE_ALGORITHM` | `auto` | how bytes move (`auto ring`) |\n", text)
        self.assertIn("| `RONDE_INTERFACE` | empty | the networks |\n\nthe end", text)
        reference = (self.root / "bindings/cpp/README.md").read_text(encoding="utf-8")
        self.assertIn("how bytes move; named, every rank counts (`auto ring`)", reference)
        self.assertIn("| `RONDE_PIECES` | `0` | how many pieces |\n", reference)
        self.assertNotIn("RONDE_PIECES", text)

    def test_a_source_that_changed_is_noticed_in_every_page(self):
        self.change("examples/readme_snippet.cc", "{}", "{ }")
        self.change("base/config.cc", "; named", "; forced")
        self.change("examples/supervised_loop.cc", "step()", "stop()")
        self.assertEqual([problem.split()[0] for problem in readme.check(self.root)],
                         ["README.md", "bindings/cpp/README.md", "bindings/trainer/README.md"])

    def test_200_lines_of_120_characters_are_allowed_and_no_more(self):
        self.assertEqual(list(readme.size_problems(200 * ("é" * 120 + "\n"))), [])
        self.assertEqual(len(list(readme.size_problems(201 * "a\n"))), 1)
        problems = list(readme.size_problems("a\n" + "é" * 121))
        self.assertEqual(len(problems), 1)
        self.assertIn("README.md:2", problems[0])

    def test_a_long_snippet_and_a_lost_part_are_refused(self):
        self.write("examples/readme_snippet.cc", 31 * "int x;\n")
        with self.assertRaisesRegex(readme.Refused, "30 at most"):
            readme.check(self.root)
        self.write("examples/readme_snippet.cc", "int x;\n")
        self.change("bindings/cpp/README.md", "| setting |", "| name |")
        with self.assertRaisesRegex(readme.Refused, "lost"):
            readme.check(self.root)


class Pages(Tree):
    def problems(self):
        return pages.check(self.root)

    def test_pages_that_are_right_have_no_problems(self):
        self.assertEqual(self.problems(), [])

    def test_a_link_to_a_file_that_is_not_there(self):
        self.write("base/NOTES.md", "one\n\n[a](../README.md) and ![b](gone.svg)\n[c](https://example.org/x)\n")
        self.assertEqual(self.problems(), ["base/NOTES.md:3: the link to gone.svg leads nowhere"])

    def test_a_link_to_a_heading_that_is_not_there(self):
        self.write("base/NOTES.md", "# What is `here`?\n\n[a](#what-is-here) [b](#what) [c](../README.md#title)\n")
        self.assertEqual(self.problems(), ["base/NOTES.md:3: the link to #what names a heading that NOTES.md has not"])

    def test_a_link_out_of_the_repository(self):
        self.write("base/NOTES.md", "[a](../../)\n")
        self.assertEqual(self.problems(), ["base/NOTES.md:1: the link to ../../ leads out of the repository"])

    def test_a_path_in_code_that_is_not_there(self):
        self.write("base/NOTES.md", "`base/config.cc` `base/gone.cc` `collectives/board/` `build/x`\n```\n[a](b)\n```\n")
        self.assertEqual(self.problems(), ["base/NOTES.md:1: there is no base/gone.cc"])

    def test_a_command_that_nothing_has_built(self):
        command = "```sh\nmpirun -np 2 build/release/bin/train\n```\n"
        self.write("base/NOTES.md", f"See `build/release/bin/`.\n{command}")
        said = "nothing above says what builds this: ./dev build, say"
        self.assertEqual(self.problems(), [f"base/NOTES.md:3: {said}"])
        self.write("base/NOTES.md", f"After `./dev build`:\n{command}")
        self.assertEqual(self.problems(), [])
        self.write("base/NOTES.md", f"{command}and then `./dev build`\n")
        self.assertEqual(self.problems(), [f"base/NOTES.md:2: {said}"])

    def test_the_core_has_as_many_lines_as_its_page_says(self):
        self.write("bindings/trainer/more.h", 100 * "\n")
        self.assertEqual(self.problems(), [])
        self.write("bindings/trainer/more.h", 200 * "\n")
        self.assertEqual(self.problems(), ["bindings/trainer/README.md says that the training core has about 1,000 "
                                           "lines, and it has 1,200"])
        self.change("bindings/trainer/README.md", "about 1,000\nlines", "few lines")
        self.assertIn("does not say how many lines", self.problems()[0])

    def test_pages_of_builds_are_left_out(self):
        self.write("build/release/NOTES.md", "[a](gone)\n")
        self.write(".cache/NOTES.md", "[a](gone)\n")
        self.assertEqual(self.problems(), [])

    def test_the_map_has_the_folders_of_the_tree(self):
        self.write("collectives/kernels/sum.h", "")
        self.write("test/unit/x.cc", "")
        self.change("README.md", "base/            status\n", "base/            status\nrobots/          r\n")
        self.assertEqual(self.problems(), ["README.md: the map names robots/, which is not there",
                                           "README.md: the map leaves out collectives/kernels/",
                                           "README.md: the map leaves out test/"])


if __name__ == "__main__":
    unittest.main()
