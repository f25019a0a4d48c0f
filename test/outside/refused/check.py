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
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import late  # noqa: E402  pylint: disable=wrong-import-position

FLAGS = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
DIRECTIVE = re.compile(r"^[ /*]*\b(says|wrong|right): (.*?)(?: \*/)?$", re.M)


def parsed_once(cxx, includes, folder):
    """Flags with which the compiler takes the facade from a precompiled header, as the first of a file."""
    header = pathlib.Path(folder) / "facade.h"
    header.write_text("#include <ronde/ronde.hpp>\n")
    done = late.run([*cxx, *FLAGS[1:], *includes, "-x", "c++-header", header, "-o", f"{header}.gch"], 100)
    if done.returncode != 0:
        sys.exit(f"ronde/ronde.hpp does not compile:\n{done.stderr}")
    return ["-include", str(header)]


def compiled(compiler, file, includes, flags):
    done = late.run([*compiler, *FLAGS, *includes, *flags, file], 100)
    return done.returncode == 0, done.stderr


def failures_of(files, compilers, includes, facade):
    failures = []
    for file in files:
        text = file.read_text()
        directives = dict(DIRECTIVE.findall(text))
        compiler = compilers[file.suffix]
        # The header is of no use in another language, and MPI's comes first where there is both.
        if file.suffix == ".cc" and "wrong" not in directives and "<ronde/mpi.h>" not in text:
            compiler = [*compiler, *facade]
        accepted, text = compiled(compiler, file, includes, directives.get("wrong", "").split())
        if accepted:
            failures.append(f"{file.name} compiles")
        elif not re.search(directives["says"], text):
            failures.append(f"{file.name}: expected '{directives['says']}' in\n{text}")
        accepted, text = compiled(compiler, file, includes, directives.get("right", "-DRIGHT").split())
        if not accepted:
            failures.append(f"{file.name} does not compile without the mistake either:\n{text}")
    return failures


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    cc, cxx, *folders = sys.argv[1:]
    # As a user's flags have them: warnings inside MPI's header are nobody's business here.
    includes = [word for folder in folders for word in ("-isystem", folder)]
    compilers = {".c": [cc, "-std=c99"], ".cc": [cxx, "-std=c++20"]}
    files = sorted(file for file in pathlib.Path(__file__).parent.iterdir() if file.suffix in compilers)
    with tempfile.TemporaryDirectory() as folder:
        failures = failures_of(files, compilers, includes, parsed_once(compilers[".cc"], includes, folder))
    print("\n".join(failures) or f"{len(files)} programs are refused, each for its mistake alone")
    sys.exit(1 if failures or not files else 0)


if __name__ == "__main__":
    late.end(main)
