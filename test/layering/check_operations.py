#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails where an operation is named in more files than adding one should take.

What everybody has to know of an operation stands in its row (base/operations.h). A file names an operation if its
code, comments left out, has one of the words below; a file that only calls an algorithm of its own (in_host_allreduce)
does not. CONTRIBUTING.md shows what adding an operation takes.
"""

import argparse
import pathlib
import re
import sys

ROWS = re.compile(r'\.operation = Operation::k(\w+), \.name = "([a-z_ ]+)"')

# Where it may be named, by how many files, and the words: {camel} AllToAll, {snake} all_to_all, {upper} ALL_TO_ALL.
PLACES = {
    "core": (10, ["base", "fusion", "collectives", "runtime", "bindings/c", "bindings/cpp"],
             r"Operation::k{camel}\b|\bk{camel}\b *=|RONDE_PLUGIN_{upper}\b|ronde_(grouped_)?{snake}(_async|_flat)?\b"
             r"|\b(Work|void) {snake}\("),
    "python": (6, ["bindings/python"],
               r"""["'](grouped_)?{snake}["']|ronde_(grouped_)?{snake}|\bdef (grouped_)?{snake}(_async)?_?\(|^{snake} = """),
    "perf": (3, ["examples/perf"], r"\bk{camel}\b|ronde_{snake}(_async)?\b"),
}
SUFFIXES = {".h", ".hpp", ".cc", ".c", ".cu", ".py"}
COMMENTS = {True: re.compile(r'"""[\s\S]*?"""|#.*'), False: re.compile(r"//.*|/\*[\s\S]*?\*/")}


def operations(root):
    """(camel, snake) of every operation of the table; a barrier of devices is a barrier."""
    text = (root / "base" / "operations.h").read_text(encoding="utf-8")
    return [(camel, name) for camel, name in re.findall(ROWS, re.sub(r"\s+", " ", text)) if " " not in name]


def naming_files(root, folders, pattern):
    """The files below the folders whose code matches."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            code = COMMENTS[path.suffix == ".py"].sub("", path.read_text(encoding="utf-8"))
            if re.search(pattern, code, re.MULTILINE):
                yield path.relative_to(root).as_posix()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", type=pathlib.Path)
    root = parser.parse_args().root.resolve()
    named = operations(root)
    wrong = 0
    for camel, snake in named:
        for place, (most, folders, pattern) in PLACES.items():
            words = pattern.replace("{camel}", camel).replace("{snake}", snake).replace("{upper}", snake.upper())
            files = list(naming_files(root, folders, words))
            print(f"{snake}: {len(files)} of {place}")
            if len(files) > most or not files:
                wrong += 1
                print(f"  {most} are the limit, and one the least; ask the row instead: {' '.join(files)}")
    if len(named) < 6:
        print(f"{root}: {len(named)} operations in the table: is this the root of the repository?")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
