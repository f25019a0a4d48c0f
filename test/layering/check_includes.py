#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails where a file uses a header that it gets from the precompiled ones alone: it would not compile without them.

usage: check_includes.py [ROOT]

A header counts as included where the file, or a header of this project that it includes, names it. What is looked
for are the names by which files use the precompiled headers (cmake/RondeTargets.cmake, test/cmake/RondeTests.cmake).
Also in sources that are not tests: headers of C, and names that are taken over or inline and not used, since clang-tidy
looks for both only in a source that it reads alone (test/lint/tidy.py).
"""
import pathlib
import re
import sys

STANDARD = {
    "algorithm": r"(ranges::)?(all_of|any_of|binary_search|clamp|copy|copy_n|count|count_if|equal|equal_range|fill|"
                 r"fill_n|find|find_if|for_each|generate|is_sorted|lower_bound|max|max_element|min|min_element|minmax|"
                 r"minmax_element|mismatch|next_permutation|none_of|nth_element|partition|remove|remove_if|replace|"
                 r"reverse|rotate|search|shuffle|sort|stable_sort|swap_ranges|transform|unique|upper_bound)\(",
    "array": r"(array|to_array)\b",
    "atomic": r"atomic",
    "chrono": r"chrono\b",
    "cstddef": r"(byte|max_align_t|ptrdiff_t|size_t)\b",
    "cstdint": r"u?int(_fast|_least)?(\d+|ptr|max)_t\b",
    "cstring": r"(mem(chr|cmp|cpy|move|set)|str(chr|cmp|error|len|ncmp|rchr|str))\b",
    "functional": r"(bind|equal_to|function|greater|hash|invoke|less|plus|reference_wrapper|ref|cref)\b",
    "map": r"(multi)?map\b",
    "memory": r"(addressof|construct_at|enable_shared_from_this|make_shared|make_unique|shared_ptr|unique_ptr|"
              r"weak_ptr)\b",
    "mutex": r"(call_once|lock_guard|mutex|once_flag|scoped_lock|unique_lock)\b",
    "optional": r"(nullopt|optional)\b",
    "random": r"(mt19937|uniform_)",
    "span": r"(as_bytes|as_writable_bytes|dynamic_extent|span)\b",
    "string": r"(getline|sto(d|f|i|l|ll|ul|ull)|string|to_string)\b",
    "string_view": r"string_view\b",
    "thread": r"(this_thread|thread)\b",
    "utility": r"(as_const|cmp_\w+|declval|exchange|forward|in_range|index_sequence|make_pair|move|pair|swap|"
               r"to_underlying)\b",
    "vector": r"vector\b",
}
USES = {header: re.compile(r"\bstd::" + names) for header, names in STANDARD.items()}
USES["gtest/gtest.h"] = re.compile(r"\b(TEST(_F|_P)?|(EXPECT|ASSERT)_\w+)\(")
USES["gmock/gmock.h"] = re.compile(r"\b((EXPECT|ASSERT)_THAT|(EXPECT|ON)_CALL|MOCK_METHOD|MATCHER(_P\d*)?)\(")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
HEADER_OF_C = re.compile(r"^\s*#\s*include\s*<((?:assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|"
                         r"math|setjmp|signal|stdalign|stdarg|stdbool|stddef|stdint|stdio|stdlib|string|tgmath|time|"
                         r"uchar|wchar|wctype)\.h)>", re.MULTILINE)
TAKEN_OVER = re.compile(r"^\s*(?:using\s+(?:\w*::)+(\w+);|namespace\s+(\w+)\s*=)", re.MULTILINE)
INLINE = re.compile(r"^(?:constexpr|inline)\s[^=;{}()]*?\b(\w+)\(", re.MULTILINE)
PUBLIC = ("bindings/c/include", "bindings/cpp/include", "bindings/torch/include", "bindings/trainer/include")
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
    """Names that the source takes over, and functions that it keeps to itself, which occur nowhere else in it."""
    text = re.sub(r'"(?:\\.|[^"\\\n])*"|^\s*#.*', "", without_comments(path), flags=re.MULTILINE)
    taken = {name or alias for name, alias in TAKEN_OVER.findall(text)}
    body = re.sub(r"^\s*using\s[^;]*;|^\s*namespace\s+\w+\s*=", "", text, flags=re.MULTILINE)
    unused_names = {name for name in taken if not re.search(rf"(?<![\w.:>]){name}\b", body)}
    kept = {name for name in INLINE.findall(text) if len(re.findall(rf"\b{name}\b", text)) < 2}
    return sorted(unused_names | kept)


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
            found += [(path, f"has the name {name}, and does not use it") for name in unused(path)]
    return [f"{path.relative_to(root)}: {text}" for path, text in found]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    found = complaints(root)
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
