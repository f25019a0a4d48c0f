#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The parts of the pages that are made from sources (the snippet, the settings), and the size of README.md.

usage: readme.py ROOT check    fails when a page differs from the sources, or README.md is too large
       readme.py ROOT write    brings the pages up to date
"""
import pathlib
import re
import sys

README = "README.md"
REFERENCE = "bindings/cpp/README.md"
TRAINER = "bindings/trainer/README.md"
MOST_LINES = 200
MOST_CHARACTERS = 120
MOST_SNIPPET_LINES = 30
# The settings that many jobs touch; README.md leaves all others to the reference.
IN_README = {"RONDE_ALGORITHM", "RONDE_BATCH_BYTES", "RONDE_START_TIMEOUT_SECONDS", "RONDE_STALL_WARNING_SECONDS",
             "RONDE_STALL_FAILURE_SECONDS", "RONDE_LINK_TIMEOUT_SECONDS", "RONDE_ALONE",
             "RONDE_TRANSPORT", "RONDE_INTERFACE", "RONDE_LOG_LEVEL"}


class Refused(Exception):
    """The pages cannot stay as they are; the text says why."""


def snippet(root):
    lines = (root / "examples/readme_snippet.cc").read_text(encoding="utf-8").splitlines()
    while lines and (lines[0].startswith("//") or not lines[0].strip()):
        lines.pop(0)  # the licence is not part of the snippet
    if len(lines) > MOST_SNIPPET_LINES:
        raise Refused(f"examples/readme_snippet.cc has {len(lines)} lines of code: make it {MOST_SNIPPET_LINES} at most")
    return "```cpp\n" + "\n".join(lines) + "\n```\n"


def supervised_function(root):
    """The function that trains in examples/supervised_loop.cc, which is run as a test."""
    text = (root / "examples/supervised_loop.cc").read_text(encoding="utf-8")
    found = re.search(r"^static int train\(.*?^}\n", text, re.M | re.S)
    if found is None:
        raise Refused("examples/supervised_loop.cc has lost its function train()")
    return "```cpp\n" + found.group(0) + "```\n"


def settings(root):
    """Reads the table in base/config.cc: (name, default, choices, meaning) of each setting."""
    text = (root / "base/config.cc").read_text(encoding="utf-8")
    begin = text.index("kSettings = ")
    table = text[begin:text.index("});", begin)]
    rows = re.findall(r'\{"(RONDE_\w+)",\s*&Config::\w+,\s*"([^"]*)",\s*"([^"]*)",.*?'
                      r'(?:true|false),\s*((?:"[^"]*"\s*)+)(?:,\s*\d+)?\}', table, re.S)
    declared = re.findall(r'\{"(RONDE_\w+)"', table)
    if [row[0] for row in rows] != declared:
        raise Refused(f"the table of settings in base/config.cc cannot be read: it declares {declared}, "
                      f"and {[row[0] for row in rows]} were found")
    return [(name, default, choices, "".join(re.findall(r'"([^"]*)"', parts)))
            for name, default, choices, parts in rows]


def settings_table(root, short):
    """The settings as a table; the short one has those IN_README, with the meaning up to its first ';' or ':'."""
    lines = ["| setting | default | meaning |", "|---|---|---|"]
    for name, default, choices, meaning in settings(root):
        if short and name not in IN_README:
            continue
        if short:
            meaning = re.split(r"[;:] ", meaning)[0]
        if choices:
            meaning += f" (`{choices}`)"
        shown = f"`{default}`" if default else "empty"
        lines.append(f"| `{name}` | {shown} | {meaning} |")
    return "\n".join(lines) + "\n"


def replace(page, text, pattern, content):
    """Puts content in place of the first part of the text that matches."""
    changed, count = re.subn(pattern, lambda _: content, text, count=1, flags=re.M | re.S)
    if count == 0:
        raise Refused(f"{page} has lost a part that is made from sources: nothing matches {pattern}")
    return changed


def made(root):
    """{page: what it must hold}"""
    result = {}
    for page in (README, REFERENCE):
        text = (root / page).read_text(encoding="utf-8")
        if page == README:
            text = replace(page, text, r"^```cpp\n.*?^```\n", snippet(root))
        result[page] = replace(page, text, r"^\| setting \| default \| meaning \|\n(\|[^\n]*\n)*",
                               settings_table(root, short=page == README))
    text = (root / TRAINER).read_text(encoding="utf-8")
    result[TRAINER] = replace(TRAINER, text, r"^```cpp\nstatic int train\(.*?^```\n", supervised_function(root))
    return result


def size_problems(text):
    """What is too large in the text of README.md."""
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        yield f"{README} has {len(lines)} lines: make it {MOST_LINES} at most"
    for number, line in enumerate(lines, 1):
        if len(line) > MOST_CHARACTERS:
            yield f"{README}:{number}: the line has {len(line)} characters: make it {MOST_CHARACTERS} at most"


def check(root):
    """All problems, as lines."""
    problems = [f"{page} differs from its sources (an example, base/config.cc): run test/docs/readme.py . write"
                for page, text in made(root).items() if (root / page).read_text(encoding="utf-8") != text]
    return problems + list(size_problems((root / README).read_text(encoding="utf-8")))


def main():
    root, mode = pathlib.Path(sys.argv[1]), sys.argv[2]
    try:
        if mode == "write":
            for page, text in made(root).items():
                (root / page).write_text(text, encoding="utf-8")
            return
        problems = check(root)
    except Refused as reason:
        problems = [str(reason)]
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
