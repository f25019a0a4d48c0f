#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The parts of README.md that are made from sources: the snippet and the table of settings.

usage: readme.py ROOT check    fails when README.md differs from the sources
       readme.py ROOT write    brings README.md up to date
"""
import pathlib
import re
import sys


def snippet(root):
    lines = (root / "examples/readme_snippet.cc").read_text().splitlines()
    while lines and (lines[0].startswith("//") or not lines[0].strip()):
        lines.pop(0)  # licence and the note about where the snippet is used
    if len(lines) > 30:
        sys.exit(f"examples/readme_snippet.cc has {len(lines)} lines of code; the README promises 30")
    return "```cpp\n" + "\n".join(lines) + "\n```\n"


def settings(root):
    text = (root / "base/config.cc").read_text()
    table = text[text.index("kSettings{{"):text.index("}};", text.index("kSettings{{"))]
    rows = re.findall(r'\{"(RONDE_\w+)",\s*SettingKind::k(\w+),\s*"([^"]*)",\s*"([^"]*)",.*?'
                      r'(true|false),\s*((?:"[^"]*"\s*)+)\}', table, re.S)
    declared = re.findall(r'\{"(RONDE_\w+)"', table)
    if [row[0] for row in rows] != declared:
        sys.exit(f"cannot read the table of settings: {declared} against {[row[0] for row in rows]}")
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    for name, _, default, choices, _, help_parts in rows:
        meaning = "".join(re.findall(r'"([^"]*)"', help_parts))
        if choices:
            meaning += " (`" + "`, `".join(choices.split()) + "`)"
        shown = f"`{default}`" if default else "empty"
        lines.append(f"| `{name}` | {shown} | {meaning} |")
    return "\n".join(lines) + "\n"


def replace(text, begin, end, content):
    first = text.index(begin) + len(begin) + 1
    last = text.index(end, first)
    return text[:first] + content + text[last:]


def main():
    root, mode = pathlib.Path(sys.argv[1]), sys.argv[2]
    path = root / "README.md"
    before = path.read_text()
    after = replace(before, "<!-- snippet: examples/readme_snippet.cc -->",
                    "<!-- end of snippet -->", snippet(root))
    after = replace(after, "<!-- settings: base/config.cc -->", "<!-- end of settings -->",
                    settings(root))
    if mode == "write":
        path.write_text(after)
    elif before != after:
        sys.exit("README.md differs from examples/readme_snippet.cc or base/config.cc: "
                 "run test/docs/readme.py . write")


if __name__ == "__main__":
    main()
