#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails where the public headers leave out what a caller must know.

usage: public_headers.py ROOT

- ronde.h: a comment stands right before each function; it names what the function `Returns`, or, for one
  that returns nothing, says `Never fails`.
- the facade (*.hpp): the comment of each class and struct outside `namespace detail` says `Thread safety:`,
  and each public function, constructor or group of them (no blank line in between) has a comment.
"""
import pathlib
import re
import sys

C_HEADER = "bindings/c/include/ronde/ronde.h"
FACADES = ("bindings/cpp/include/ronde", "bindings/torch/include/ronde/torch")
FUNCTION = re.compile(r"^RONDE_API\s+([^;(]*?)(\w+)\(", re.M)
CLASS = re.compile(r"^(?:template\s*<[^\n]*>\n)?(?:class|struct)\s+(\w+)[^;\n]*\{", re.M)
# What opens a member function: a return type or a modifier, and a name with a parenthesis, but no statement.
MEMBER = re.compile(r"^  (?:\[\[nodiscard\]\] |explicit |static |template|requires)?[\w~][^;=]*\(")


def comment_before(text, position):
    """The block comment that ends right before `position`, or nothing."""
    before = text[:position].rstrip(" ")
    if not before.endswith("*/\n"):
        return ""
    words = before[before.rindex("/*"):].replace("*", " ").split()
    return " ".join(words)  # a line break may be anywhere


def c_findings(text):
    findings = []
    for function in FUNCTION.finditer(text):
        result, name = function.group(1).strip(), function.group(2)
        needed = "Never fails" if result == "void" else "Returns"
        # A group's headline ends with a blank line: it is not the comment of its first function.
        if not re.search(rf"\b{needed}\b", comment_before(text, function.start())):
            findings.append(f"{name} has no comment right before it with '{needed}'")
    if not findings and not FUNCTION.search(text):
        findings.append("no function was found: does RONDE_API still mark them?")
    return findings


def lines_before(lines, index):
    """The // comment right before line `index`."""
    first = index
    while first > 0 and lines[first - 1].lstrip().startswith("//"):
        first -= 1
    return "\n".join(lines[first:index])


def without_detail(text):
    return re.sub(r"^namespace detail \{.*?^\}  // namespace detail$", "", text, flags=re.M | re.S)


def member_findings(name, body):
    """Public functions of a class that have no comment: neither their own nor that of the group they are in."""
    findings = []
    public = body.split("\n private:")[0].split("\n")
    blocks, block = [], []
    for line in public + [""]:
        if line.strip():
            block.append(line)
        elif block:
            blocks.append(block)
            block = []
    for block in blocks:
        functions = [line for line in block
                     if MEMBER.match(line) and "= delete" not in line and "static_assert" not in line]
        if functions and not any(line.startswith("  //") for line in block):
            findings.append(f"{name}: no comment says what this does: {functions[0].strip()}")
    return findings


def facade_findings(text):
    findings = []
    text = without_detail(text)
    for match in CLASS.finditer(text):
        name = match.group(1)
        before = text[:match.start()].split("\n")[:-1]
        if "Thread safety:" not in lines_before(before, len(before)):
            findings.append(f"the comment of {name} has no 'Thread safety:'")
        if text[match.end():].startswith("};"):
            continue  # no members of its own
        end = text.index("\n};", match.start())
        findings += member_findings(name, text[match.end():end])
    return findings


def main():
    root = pathlib.Path(sys.argv[1])
    findings = [f"{C_HEADER}: {what}" for what in c_findings((root / C_HEADER).read_text())]
    headers = sorted(header for facade in FACADES for header in (root / facade).glob("*.hpp"))
    if not any(CLASS.search(without_detail(header.read_text())) for header in headers):
        findings.append(f"{FACADES[0]}: no class was found")
    for header in headers:
        name = header.relative_to(root)
        findings += [f"{name}: {what}" for what in facade_findings(header.read_text())]
    if findings:
        sys.exit("\n".join(findings))


if __name__ == "__main__":
    main()
