#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on a page (*.md) that names what is not there.

Links to files and to headings are looked at; paths in `code`, which begin with a folder of this repository; the map of
README.md, whose folders must be those of the tree, none missing; commands in a build's folder, before which the page
must have said what builds it; and how many lines the training core has, to a tenth.

usage: pages.py ROOT
"""
import pathlib
import re
import sys

FOLDERS = ("base", "fusion", "collectives", "runtime", "bindings", "launcher", "examples", "test")
# The map of README.md goes down to the folders inside these.
ROOMS = ("collectives", "runtime")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
BUILT = re.compile(r"\bbuild/(?:release|debug|cuda|wheel)/")
BUILDS = re.compile(r"\./dev (?:build|wheel)|cmake --build")
PATH = re.compile(r"(?:" + "|".join(FOLDERS) + r")/[\w./-]*")


def pages(root):
    return [page for page in sorted(root.rglob("*.md"))
            if not any(part == "build" or part.startswith(".") for part in page.relative_to(root).parts)]


def prose(text):
    """The text without its blocks of code; the lines keep their numbers."""
    lines, inside = [], False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        lines.append("" if fence or inside else line)
        inside ^= fence
    return lines


def anchors(text):
    """The headings as GitHub names them in links."""
    headings = [line.lstrip("#").strip() for line in prose(text) if re.match(r"#{1,6} ", line)]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def link_problem(root, page, target):
    """What is wrong with one link, or None."""
    if re.match(r"[a-z]+:", target):
        return None
    path, _, heading = target.partition("#")
    file = (page.parent / path if path else page).resolve()
    if not file.exists():
        return f"the link to {target} leads nowhere"
    if not file.is_relative_to(root.resolve()):
        return f"the link to {target} leads out of the repository"
    if heading and heading not in anchors(file.read_text(encoding="utf-8")):
        return f"the link to {target} names a heading that {file.name} has not"
    return None


def page_problems(root, page):
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(root).as_posix()
    for number, line in enumerate(prose(text), 1):
        for target in LINK.findall(line):
            if problem := link_problem(root, page, target):
                yield f"{name}:{number}: {problem}"
        for code in CODE.findall(line):
            # A path with a placeholder, as in test/<folder>/<file>_test.cc, is not one.
            if PATH.fullmatch(code) and not (root / code).exists():
                yield f"{name}:{number}: there is no {code}"
    for number in unbuilt(text):
        yield f"{name}:{number}: nothing above says what builds this: ./dev build, say"


def unbuilt(text):
    """The numbers of lines with a command of a build that nothing above them on the page has built."""
    inside, before = False, []
    for number, line in enumerate(text.splitlines(), 1):
        before.append(line)
        if line.startswith("```"):
            inside = line == "```sh"
        elif inside and BUILT.search(line) and not BUILDS.search("\n".join(before)):
            yield number


def core_problems(root):
    """The page of the training core says how many lines it has."""
    folder = root / "bindings/trainer"
    said = re.search(r"about ([\d,]+)\s+lines", (folder / "README.md").read_text(encoding="utf-8"))
    if said is None:
        yield "bindings/trainer/README.md does not say how many lines the training core has: about 1,000 lines, say"
        return
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*")
                if path.suffix in (".cc", ".h", ".hpp", ".proto"))
    if abs(int(said[1].replace(",", "")) - lines) > lines / 10:
        yield f"bindings/trainer/README.md says that the training core has about {said[1]} lines, and it has {lines:,}"


def mapped(text):
    """The folders in the map of README.md, which is the block of code below its heading."""
    block = text.partition("\n## Map\n")[2].partition("\n```\n")[2].partition("\n```\n")[0]
    found, parent = set(), ""
    for line in block.splitlines():
        for indent, folders in re.findall(r"^( *)((?:[\w/]+/ )+)", line):
            for folder in folders.replace("/ ", " ").split():
                if not indent:
                    parent = folder
                found.add(f"{parent}/{folder}" if indent else folder)
    return found


def map_problems(root):
    found = mapped((root / "README.md").read_text(encoding="utf-8"))
    there = {folder for folder in FOLDERS if (root / folder).is_dir()}
    for folder in there.intersection(ROOMS):
        there |= {f"{folder}/{room.name}" for room in (root / folder).iterdir()
                  if room.is_dir() and not room.name.startswith("_")}
    yield from (f"README.md: the map names {folder}/, which is not there"
                for folder in sorted(found) if not (root / folder).is_dir())
    yield from (f"README.md: the map leaves out {folder}/" for folder in sorted(there - found))


def check(root):
    """All problems below root, as lines."""
    problems = [problem for page in pages(root) for problem in page_problems(root, page)]
    return problems + list(map_problems(root)) + list(core_problems(root))


if __name__ == "__main__":
    if found_problems := check(pathlib.Path(sys.argv[1])):
        sys.exit("\n".join(found_problems))
