#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on numbers that pass through the program's locale: a machine reads them again, and a program that sets the
locale of its user writes 0.5 as "0,5" and 1000 as "1.000".

The functions to use are number_text() and parse_number() of base/text.h, and formatted(), number_text() and
exact_text() of bindings/trainer/tensor/texts.h. A stream is free where its next lines imbue() it.

usage: locale_numbers.py FILE...
"""
import pathlib
import re
import sys

CALLS = re.compile(r"\b(?:std::)?(?:sto(?:d|f|ld)|strto(?:d|f|ld)|atof)\b\s*\(")
PRINTS = re.compile(r"\bv?(?:f|s|sn|d)?printf\s*\((?P<rest>[^;]*)")
FLOATING = re.compile(r"%[-+ #0-9.*]*[lL]?[aefgAEFG]")
STREAM = re.compile(r"\bstd::(?P<kind>[io]?)stringstream (?P<name>\w+)\b")
TEXT_OF = re.compile(r"\bto_string\(\s*static_cast<(?:double|float)>")
TEXT_OF_NAME = re.compile(r"\bto_string\(\s*(?:\w+(?:\.|->))*(?P<name>\w+)\)")
DECLARED = re.compile(r"\b([\w:]+) (?:const )?&?(\w+)(?= = |;|,|\)|\{)")
NEAR = 3  # lines


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def types_of(code):
    """{name: the types with which it is declared}"""
    types = {}
    for kind, name in DECLARED.findall(code):
        types.setdefault(name, set()).add(kind)
    return types


def problems(text, elsewhere=None):
    """Pairs of a line's number and what is wrong there. elsewhere: types_of() all files, for members of structs that are
    declared in another one."""
    code = without_comments(text)
    lines = code.splitlines()

    def line_of(match):
        return code.count("\n", 0, match.start()) + 1

    for pattern, what in ((CALLS, "reads a number as the locale says"), (TEXT_OF, "writes a number as the locale says")):
        for match in pattern.finditer(code):
            yield line_of(match), what
    for match in TEXT_OF_NAME.finditer(code):
        declared = re.findall(rf"\b([\w:]+) (?:const )?&?{match['name']}\b", code[:match.start()])
        types = set(declared[-1:]) or (elsewhere or {}).get(match["name"], set())
        if types and types <= {"double", "float"}:
            yield line_of(match), "writes a number as the locale says"
    for match in PRINTS.finditer(code):
        if FLOATING.search(match["rest"]):
            yield line_of(match), "prints a number as the locale says"
    for match in STREAM.finditer(code):
        number, name = line_of(match), match["name"]
        if any(f"{name}.imbue(" in line for line in lines[number:number + NEAR]):
            continue
        if match["kind"] == "i" and not re.search(rf"\b{name} >>", code):
            continue  # getline() knows no numbers
        yield number, f"the stream {name} has the program's locale"


def main():
    texts = {name: pathlib.Path(name).read_text(encoding="utf-8") for name in sys.argv[1:]}
    types = types_of(without_comments("\n".join(texts.values())))
    found = [f"{name}:{number}: {what}: see test/lint/locale_numbers.py" for name, text in texts.items()
             for number, what in sorted(problems(text, types))]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
