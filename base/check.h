// SPDX-License-Identifier: Apache-2.0
// Invariants. A failed check is a bug in Ronde: it prints what was compared and where, and aborts.
// Errors that a user can cause are a Status instead (status.h).
#pragma once

#include <locale>
#include <source_location>
#include <sstream>
#include <string>
#include <utility>

namespace ronde::base {

[[noreturn]] void fail_check(const std::string& text, const std::source_location& where);

inline void check(bool condition, const char* what,
                  const std::source_location& where = std::source_location::current()) {
  if (!condition) [[unlikely]] {
    fail_check(what, where);
  }
}

// Prints both operands: whoever mends the bug needs the value that was wrong.
template <typename A, typename B>
void check_eq(const A& a, const B& b, const char* what,
              const std::source_location& where = std::source_location::current()) {
  if (!(a == b)) [[unlikely]] {
    std::ostringstream text;
    text.imbue(std::locale::classic());
    text << what << " (" << a << " against " << b << ")";
    fail_check(text.str(), where);
  }
}

}  // namespace ronde::base
