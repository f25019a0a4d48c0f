// SPDX-License-Identifier: Apache-2.0
// The failing half of check.h, apart from it so that a check in a header costs one compare.
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace ronde::base {

void fail_check(const std::string& text, const std::source_location& where) {
  // One call, so that the lines of several ranks do not mix.
  std::fprintf(stderr, "ronde: internal check failed at %s:%u: %s\n", where.file_name(),
               static_cast<unsigned>(where.line()), text.c_str());
  std::abort();
}

}  // namespace ronde::base
