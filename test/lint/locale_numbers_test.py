#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What locale_numbers.py finds, and what it leaves alone."""
import unittest

import locale_numbers

BAD = ("const double x = std::stod(text);", "double x = strtod(text, &end);", "x = std::atof(text);",
       'std::printf("loss %.6f\\n", loss);', 'std::snprintf(text, sizeof text,\n  "%zu %g", n, x);',
       "std::ostringstream text;\ntext << 1000;", "std::istringstream words(text);\nwords >> count;",
       "std::to_string(static_cast<double>(count))",
       "double rate = 0; say(std::to_string(rate));", "{ float norm; } say(std::to_string(options.norm));")
GOOD = ('std::printf("%d of %zu, 100 %%\\n", n, m);', "// std::stod() would follow the locale",
        'formatted("loss %.6f", loss);', "std::ostringstream text;\ntext.imbue(std::locale::classic());\ntext << 1000;",
        "std::istringstream lines(text);\nstd::getline(lines, line);", "std::strtoll(text, &end, 10);",
        "std::to_string(count)", "double step; void f(int step) { say(std::to_string(step)); }")


class LocaleNumbers(unittest.TestCase):
    def test_what_follows_the_locale_is_found(self):
        for text in BAD:
            self.assertEqual(len(list(locale_numbers.problems("int a;\n" + text))), 1, text)
            self.assertEqual(next(locale_numbers.problems("int a;\n" + text))[0], 2, text)

    def test_members_that_another_file_declares_are_known(self):
        types = locale_numbers.types_of("struct Options { double clip_norm = 0.0; int steps = 0; };")
        self.assertEqual(len(list(locale_numbers.problems("say(std::to_string(options.clip_norm));", types))), 1)
        self.assertEqual(list(locale_numbers.problems("say(std::to_string(options.steps));", types)), [])

    def test_the_rest_is_left_alone(self):
        for text in GOOD:
            self.assertEqual(list(locale_numbers.problems(text)), [], text)


if __name__ == "__main__":
    unittest.main()
