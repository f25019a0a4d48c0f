#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C ABI beside that of the last commit: types, fields, offsets, values and functions of the public C headers, as
debug information has them, so that none of it changes by mistake. A program that was built before must run: fields are
added at the end of a struct that begins with struct_size, functions and values are added, and nothing else changes.

usage: abi.py check|write ROOT COMPILER      (write: after a change that is meant; it goes into the same commit)
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BASELINE = HERE / "ronde.abi"
HEADERS = ("bindings/c/include/ronde/ronde.h", "collectives/transport/plugin.h", "collectives/device/plugin.h")


def program(root, headers):
    """Its variables point to every type and function that the headers declare."""
    lines, names = [], set()
    for header in headers:
        text = re.sub(r"/\*.*?\*/", "", (root / header).read_text(encoding="utf-8"), flags=re.S)
        lines.append(f'#include "{root / header}"')
        names.update(("type", name) for name in re.findall(r"^(?:typedef )?struct (ronde_\w+) \{", text, re.M))
        names.update(("type", name) for name in re.findall(r"^\} (ronde_\w+);", text, re.M))
        names.update(("function", name) for name in re.findall(r"\bRONDE_API\b[^;(]*?\b(ronde_\w+)\(", text))
    for kind, name in sorted(names):
        lines.append(f"{name}* abi_{name};" if kind == "type" else f"__typeof__(&{name}) abi_{name};")
    return "\n".join(lines) + "\n"


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def described(root, compiler, folder):
    source, library, abi = folder / "abi.c", folder / "libabi.so", folder / "now.abi"
    source.write_text(program(root, HEADERS), encoding="utf-8")
    for command in ((compiler, "-g", "-gdwarf-4", "-shared", "-fPIC", source, "-o", library),
                    ("abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--type-id-style", "hash",
                     "--out-file", abi, library)):
        code, text = run(*command)
        if code != 0:
            sys.exit(f"{command[0]}: exit code {code}\n{text}")
    return abi


def main():
    what, root, compiler = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
    if shutil.which("abidiff") is None:
        sys.exit("abidiff is not in PATH: install abigail-tools (./dev test does)")
    with tempfile.TemporaryDirectory() as name:
        now = described(root, compiler, pathlib.Path(name))
        if what == "write":
            shutil.copyfile(now, BASELINE)
            return
        code, text = run("abidiff", BASELINE, now)
        if code != 0:
            sys.exit(f"the C ABI differs from that of test/exports/ronde.abi:\n{text}\n"
                     "Where that is meant, and programs that were built before still run: test/exports/abi.py write")


if __name__ == "__main__":
    main()
