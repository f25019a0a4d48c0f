// SPDX-License-Identifier: Apache-2.0
// Text that does not depend on what the program has chosen for people: lines of results, pictures
// and settings are read by machines again, and a program's locale may write 0.5 as "0,5".
#pragma once

#include <locale.h>

#include <clocale>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/words/number_text.h"

namespace ronde::trainer {

using base::exact_text;
using base::number_text;

namespace detail {

// The C locale for this thread, until it is destroyed.
class ClassicLocale {
 public:
  ClassicLocale() : before_(::uselocale(classic())) {}
  ~ClassicLocale() { ::uselocale(before_); }
  ClassicLocale(const ClassicLocale&) = delete;
  ClassicLocale& operator=(const ClassicLocale&) = delete;

 private:
  static locale_t classic() {
    static const locale_t kMade = ::newlocale(LC_ALL_MASK, "C", nullptr);
    return kMade;
  }

  const locale_t before_;
};

}  // namespace detail

// As printf() writes it in the C locale.
[[nodiscard, gnu::format(printf, 1, 2)]] inline std::string formatted(const char* format, ...) {
  const detail::ClassicLocale classic;
  std::va_list arguments;
  va_start(arguments, format);
  std::va_list again;
  va_copy(again, arguments);
  const int length = std::vsnprintf(nullptr, 0, format, arguments);
  va_end(arguments);
  std::string text(length > 0 ? static_cast<std::size_t>(length) : 0, '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return text;
}

// The value of an environment variable; nothing where it is not set or empty, as launchers and
// shells do not tell the two apart easily.
[[nodiscard]] inline std::optional<std::string> variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

}  // namespace ronde::trainer
