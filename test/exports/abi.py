#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C ABI beside that of the last commit: types, fields, offsets, values and functions of the public C headers, as
debug information has them, so that none of it changes by mistake. A program that was built before must run: fields are
added at the end of a struct that begins with struct_size, functions and values are added, and nothing else changes.

usage: abi.py check|write ROOT COMPILER      (write: after a change that is meant; it goes into the same commit)
"""
import difflib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

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
    if done.returncode != 0:
        sys.exit(f"{command[0]}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


class Types:
    """The types that abidw has written, and the lines that describe them."""

    def __init__(self, tree):
        self.all = {element.get("id"): element for element in tree.iter() if element.get("id")}

    def text(self, identity):
        """The type as a declaration has it; what is not named here has a name of its own."""
        if identity not in self.all:
            return "void"
        of = self.all[identity]
        inner = of.get("type-id")
        if of.tag == "pointer-type-def":
            return self.text(inner) + "*"
        if of.tag == "qualified-type-def":
            return self.text(inner) + "".join(f" {word}" for word in ("const", "volatile") if of.get(word))
        if of.tag == "array-type-def":
            return self.text(inner) + "".join(f"[{part.get('length')}]" for part in of.iter("subrange"))
        if of.tag == "function-type":
            taken = ", ".join(self.text(one.get("type-id")) for one in of.iter("parameter"))
            return f"{self.text(of.find('return').get('type-id'))}({taken})"
        return of.get("name")

    def described(self, of):
        """The lines of a type or a variable, none where another one's say it all."""
        name = of.get("name")
        if of.tag == "class-decl":
            yield f"struct {name}: {of.get('size-in-bits', 'unknown')} bits"
            for member in of.iter("data-member"):
                field = member.find("var-decl")
                yield f"  {member.get('layout-offset-in-bits')} {field.get('name')}: {self.text(field.get('type-id'))}"
        elif of.tag == "enum-decl":
            yield f"enum {name}: {self.text(of.find('underlying-type').get('type-id'))}"
            yield from (f"  {one.get('name')} = {one.get('value')}" for one in of.iter("enumerator"))
        elif of.tag == "type-decl":
            yield f"type {name}: {of.get('size-in-bits', 'unknown')} bits"
        elif of.tag == "typedef-decl" and self.text(of.get("type-id")) != name:
            yield f"typedef {name}: {self.text(of.get('type-id'))}"


def described(root, compiler):
    with tempfile.TemporaryDirectory() as name:
        source, library, abi = (pathlib.Path(name) / file for file in ("abi.c", "libabi.so", "now.abi"))
        source.write_text(program(root, HEADERS), encoding="utf-8")
        run(compiler, "-g", "-gdwarf-4", "-shared", "-fPIC", source, "-o", library)
        run("abidw", "--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--type-id-style", "hash",
            "--out-file", abi, library)
        unit = xml.etree.ElementTree.parse(abi).find("abi-instr")
    types = Types(unit)
    blocks = ["\n".join(types.described(of)) for of in unit if of.tag != "var-decl"]
    pointers = [(of.get("name").removeprefix("abi_"), types.text(of.get("type-id")))
                for of in unit.iterfind("var-decl")]
    blocks += [f"function {name}: {text.removesuffix('*')}" for name, text in pointers if text.endswith(")*")]
    return "\n".join(sorted(filter(None, blocks))) + "\n"


def main():
    what, root, compiler = sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
    if shutil.which("abidw") is None:
        sys.exit("abidw is not in PATH: install abigail-tools (./dev test does)")
    now = described(root, compiler)
    if what == "write":
        BASELINE.write_text(now, encoding="utf-8")
        return
    before = BASELINE.read_text(encoding="utf-8")
    if now != before:
        text = "\n".join(difflib.unified_diff(before.splitlines(), now.splitlines(), "before", "now", lineterm=""))
        sys.exit(f"the C ABI differs from that of test/exports/ronde.abi:\n{text}\n"
                 "Where that is meant, and programs that were built before still run: test/exports/abi.py write")


if __name__ == "__main__":
    main()
