#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks examples/TOUR.md: it has every command of ./dev tour and no other, and each program and flag exists.

    tour_page.py ROOT
"""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tour"))
import tour  # noqa: E402  (a neighbour, found by the line above)

PAGE = "examples/TOUR.md"
# Where flags are written, besides the program's own source.
SHARED = ("bindings/trainer/fit/program", "bindings/trainer/server/strategy")


def commands_of(page):
    """The lines of its blocks of shell commands."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line and not line.startswith("./dev")]


def problems_of(root, page, commands):
    """All problems, as lines."""
    written = commands_of(page)
    expected = [one for _, command, _ in commands for one in command.replace("{}", "LOGDIR").split(" & ")]
    for command in expected:
        if command not in written:
            yield f"{PAGE} lacks a stop of ./dev tour: {command}"
    for command in written:
        if command not in expected:
            yield f"{PAGE} has a command that ./dev tour does not run: {command}"
    shared = "".join(path.read_text(encoding="utf-8") for folder in SHARED
                     for path in sorted((root / folder).glob("*.cc")))
    for command in written:
        words = [word for word in command.split() if (root / f"examples/{word}.cc").is_file()]
        if len(words) != 1:
            yield f"{PAGE}: there is no program examples/*.cc in: {command}"
            continue
        source = shared + (root / f"examples/{words[0]}.cc").read_text(encoding="utf-8")
        for flag in re.findall(r"--([\w-]+)", command[command.index(words[0]):]):
            if f'{{"{flag.replace("_", "-")}"' not in source:
                yield f"{PAGE}: {words[0]} has no flag --{flag}"


def main():
    root = pathlib.Path(sys.argv[1])
    problems = list(problems_of(root, (root / PAGE).read_text(encoding="utf-8"), tour.STOPS))
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
