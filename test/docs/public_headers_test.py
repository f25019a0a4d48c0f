#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""That public_headers.py fails where it should, and only there."""
import unittest

import public_headers

GOOD_C = """/* ---- things ---- */

/* Makes one. Returns: argument codes. */
RONDE_API ronde_status ronde_thing_make(ronde_thing** thing,
                                        ronde_error** error);
/* Frees it. Never
 * fails. */
RONDE_API void ronde_thing_release(ronde_thing* thing);
"""
GOOD_FACADE = """namespace detail {
struct Deleter {
  void operator()(int* thing) const { delete thing; }
};
}  // namespace detail

// One thing.
// Thread safety: none.
template <typename T>
class Thing {
 public:
  // Makes one. Throws Error.
  Thing() = default;
  Thing(const Thing&) = delete;

  // Its size, in elements.
  [[nodiscard]] int size() const { return 0; }

 private:
  void grow() {}

  void shrink() {}
};
"""


class C(unittest.TestCase):
    def test_accepts_what_is_said(self):
        self.assertEqual(public_headers.c_findings(GOOD_C), [])

    def test_wants_returns(self):
        self.assertIn("ronde_thing_make", public_headers.c_findings(GOOD_C.replace("Returns:", ""))[0])

    def test_wants_never_fails_of_what_returns_nothing(self):
        broken = GOOD_C.replace("Never\n * fails", "Returns nothing")
        self.assertIn("ronde_thing_release", public_headers.c_findings(broken)[0])

    def test_a_headline_is_no_comment_of_a_function(self):
        broken = GOOD_C.replace("codes. */\n", "codes. */\n\n")
        self.assertIn("ronde_thing_make", public_headers.c_findings(broken)[0])

    def test_one_comment_is_for_one_function(self):
        broken = GOOD_C.replace("/* Frees it. Never\n * fails. */\n", "")
        self.assertEqual(len(public_headers.c_findings(broken)), 1)

    def test_notices_a_header_without_functions(self):
        self.assertTrue(public_headers.c_findings(GOOD_C.replace("RONDE_API", "API")))


class Facade(unittest.TestCase):
    def test_accepts_what_is_said(self):
        self.assertEqual(public_headers.facade_findings(GOOD_FACADE), [])

    def test_wants_thread_safety(self):
        broken = GOOD_FACADE.replace("// Thread safety: none.\n", "")
        self.assertIn("Thing", public_headers.facade_findings(broken)[0])

    def test_wants_thread_safety_of_this_class(self):
        broken = GOOD_FACADE + "\nstruct Other {\n  int size;\n};\n"
        self.assertIn("Other", public_headers.facade_findings(broken)[0])

    def test_wants_comments_of_public_functions(self):
        broken = GOOD_FACADE.replace("  // Its size, in elements.\n", "")
        self.assertIn("size()", public_headers.facade_findings(broken)[0])


if __name__ == "__main__":
    unittest.main()
