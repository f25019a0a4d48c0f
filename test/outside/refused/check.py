#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must not compile, and what the compiler says to it.

usage: check.py CC CXX INCLUDE_FOLDER...

Each file beside this one is a program with a mistake. Its first lines say:
  says: a regular expression that the compiler's messages contain
  wrong: flags for the mistake, right: flags without it, instead of no flag and -DRIGHT
Without the mistake it compiles, so that it fails for no other reason.
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

FLAGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
DIRECTIVE = re.compile(r"^[ /*]*\b(says|wrong|right): (.*?)(?: \*/)?$", re.M)


def compiled(compiler, file, includes, flags):
    done = late.run([*compiler, *FLAGS, *includes, *flags, file], 100)
    return done.returncode == 0, done.stderr


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    cc, cxx, *folders = sys.argv[1:]
    # As a user's flags have them: warnings inside MPI's header are nobody's business here.
    includes = [word for folder in folders for word in ("-isystem", folder)]
    compilers = {".c": [cc, "-std=c99"], ".cc": [cxx, "-std=c++20"]}
    files = sorted(file for file in pathlib.Path(__file__).parent.iterdir() if file.suffix in compilers)
    failures = []
    for file in files:
        directives = dict(DIRECTIVE.findall(file.read_text()))
        compiler = compilers[file.suffix]
        accepted, text = compiled(compiler, file, includes, directives.get("wrong", "").split())
        if accepted:
            failures.append(f"{file.name} compiles")
        elif not re.search(directives["says"], text):
            failures.append(f"{file.name}: expected '{directives['says']}' in\n{text}")
        accepted, text = compiled(compiler, file, includes, directives.get("right", "-DRIGHT").split())
        if not accepted:
            failures.append(f"{file.name} does not compile without the mistake either:\n{text}")
    print("\n".join(failures) or f"{len(files)} programs are refused, each for its mistake alone")
    sys.exit(1 if failures or not files else 0)


if __name__ == "__main__":
    late.end(main)
