#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The check of includes finds what is missing, and nothing else."""
import pathlib
import tempfile
import unittest

import check_includes


class Check(unittest.TestCase):
    def complaints(self, text, **files):
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            (root / "test/unit").mkdir(parents=True)
            (root / "base").mkdir()
            (root / "test/unit/x_test.cc").write_text(text, encoding="utf-8")
            for file, content in files.items():
                (root / "base" / f"{file}.h").write_text(content, encoding="utf-8")
            return check_includes.complaints(root)

    def test_what_is_included_is_fine(self):
        self.assertEqual(self.complaints("#include <gtest/gtest.h>\n#include <vector>\n"
                                         "TEST(A, B) { std::vector<int> x; }\n"), [])

    def test_each_missing_header_is_named(self):
        self.assertEqual(self.complaints("TEST(A, B) { std::vector<std::uint8_t> x; }\n"), [
            "test/unit/x_test.cc: uses what is in <cstdint>, and does not include it",
            "test/unit/x_test.cc: uses what is in <vector>, and does not include it",
            "test/unit/x_test.cc: uses what is in <gtest/gtest.h>, and does not include it"])

    def test_headers_of_the_project_bring_their_own(self):
        text = '#include "base/one.h"\nstd::optional<int> x;\n'
        self.assertEqual(self.complaints(text, one='#include "base/two.h"\n', two="#include <optional>\n"), [])
        self.assertEqual(len(self.complaints(text, one="", two="#include <optional>\n")), 1)

    def test_gmock_brings_gtest_and_comments_use_nothing(self):
        self.assertEqual(self.complaints("#include <gmock/gmock.h>\n// std::vector\nTEST(A, B) {}\n"), [])

    def test_headers_that_include_each_other(self):
        self.assertEqual(self.complaints('#include "base/one.h"\n', one='#include "base/two.h"\n',
                                         two='#include "base/one.h"\n'), [])

    def test_sources_are_looked_at_too(self):
        def of_source(text):
            with tempfile.TemporaryDirectory() as name:
                root = pathlib.Path(name)
                (root / "fusion").mkdir()
                (root / "fusion/x.cc").write_text(text, encoding="utf-8")
                return check_includes.complaints(root)

        self.assertEqual(of_source("#include <cstddef>\nusing ronde::Op;\nOp op(std::size_t);\n"), [])
        self.assertEqual(of_source("#include <string.h>\nusing ronde::Op;\nnamespace b = ronde::base;\n"
                                   "std::byte x;  // Op\n"), [
            "fusion/x.cc: uses what is in <cstddef>, and does not include it",
            "fusion/x.cc: includes <string.h>: C++ has one of its own, <cstring>",
            "fusion/x.cc: has the name Op, and does not use it",
            "fusion/x.cc: has the name b, and does not use it"])
        self.assertEqual(of_source('using ronde::Op;\nx = other::Op + a.Op + "Op";\n'
                                   "constexpr int once(int x) { return x; }\n"
                                   "inline int twice(int x) { return twice(x); }\n"), [
            "fusion/x.cc: has the name Op, and does not use it", "fusion/x.cc: has the name once, and does not use it"])


if __name__ == "__main__":
    unittest.main()
