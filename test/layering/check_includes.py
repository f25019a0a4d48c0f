#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails where a file uses a header that it gets from the precompiled ones alone: it would not compile without them.

usage: check_includes.py [ROOT]

A header counts as included where the file, or a header of this project that it includes, names it. What is looked
for are the names by which files use the precompiled headers (cmake/RondeTargets.cmake, test/cmake/RondeTests.cmake).
Also in sources that are not tests: headers of C, and names that are taken over and not used, since clang-tidy looks
for both only in a source that it reads alone (test/lint/tidy.py).
"""
import pathlib
import re
import sys

STANDARD = {
    "algorithm": r"(ranges::)?(all_of|any_of|clamp|count_if|equal|fill|find|find_if|generate|is_sorted|lower_bound|max|"
                 r"max_element|min|min_element|next_permutation|none_of|reverse|shuffle|sort|transform)\b",
    "array": r"array\b",
    "atomic": r"atomic",
    "chrono": r"chrono\b",
    "cstddef": r"(byte|max_align_t|ptrdiff_t|size_t)\b",
    "cstdint": r"u?int\d+_t\b",
    "cstring": r"(mem(cmp|cpy|move|set)|str(chr|cmp|error|len))\b",
    "functional": r"function\b",
    "map": r"(multi)?map\b",
    "memory": r"(make_shared|make_unique|shared_ptr|unique_ptr)\b",
    "mutex": r"(lock_guard|mutex|scoped_lock|unique_lock)\b",
    "optional": r"(nullopt|optional)\b",
    "random": r"(mt19937|uniform_)",
    "span": r"span\b",
    "string": r"(string|to_string)\b",
    "string_view": r"string_view\b",
    "thread": r"(this_thread|thread)\b",
    "utility": r"(exchange\b|move\(|pair\b)",
    "vector": r"vector\b",
}
USES = {header: re.compile(r"\bstd::" + names) for header, names in STANDARD.items()}
USES["gtest/gtest.h"] = re.compile(r"\b(TEST(_F|_P)?|(EXPECT|ASSERT)_\w+)\(")
USES["gmock/gmock.h"] = re.compile(r"\b((EXPECT|ASSERT)_THAT|(EXPECT|ON)_CALL|MOCK_METHOD|MATCHER(_P\d*)?)\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
HEADER_OF_C = re.compile(r"^\s*#\s*include\s*<((?:assert|ctype|errno|float|inttypes|limits|locale|math|setjmp|signal|"
                         r"stdarg|stddef|stdint|stdio|stdlib|string|time|wchar)\.h)>", re.MULTILINE)
TAKEN_OVER = re.compile(r"^\s*(?:using\s+(?:\w*::)+(\w+);|namespace\s+(\w+)\s*=)", re.MULTILINE)
PUBLIC = ("bindings/c/include", "bindings/cpp/include")
PRODUCT = ("base", "fusion", "collectives", "runtime", "bindings", "launcher", "examples")


class Headers:
    """What a file includes, headers of this project looked into."""

    def __init__(self, root):
        self.root = root
        self.known = {}

    def of(self, path):
        if path not in self.known:
            self.known[path] = found = set()
            for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
                found.add(name)
                if name == "gmock/gmock.h":
                    found.add("gtest/gtest.h")
                for folder in (self.root, *(self.root / public for public in PUBLIC)):
                    if (folder / name).is_file():
                        found |= self.of(folder / name)
        return self.known[path]


def without_comments(path):
    return re.sub(r"//.*", "", path.read_text(encoding="utf-8"))


def missing(headers, path):
    text = without_comments(path)
    included = headers.of(path)
    return [header for header, uses in USES.items() if header not in included and uses.search(text)]


def unused(path):
    text = without_comments(path)
    names = [name or alias for name, alias in TAKEN_OVER.findall(text)]
    return [name for name in names if len(re.findall(rf"\b{name}\b", text)) < 2]


def complaints(root):
    headers = Headers(root)
    product = sorted(path for folder in PRODUCT for ending in ("h", "hpp", "cc")
                     for path in root.glob(f"{folder}/**/*.{ending}"))
    found = [(path, f"uses what is in <{header}>, and does not include it")
             for path in product + sorted(root.glob("test/**/*_test.cc")) for header in missing(headers, path)]
    for path in product:
        if path.suffix == ".cc":
            found += [(path, f"includes <{header}>: C++ has one of its own, <c{header.removesuffix('.h')}>")
                      for header in HEADER_OF_C.findall(path.read_text(encoding="utf-8"))]
            found += [(path, f"takes over the name {name}, and does not use it") for name in unused(path)]
    return [f"{path.relative_to(root)}: {text}" for path, text in found]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = complaints(root)
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
