// SPDX-License-Identifier: Apache-2.0
// Marks of a program in its timeline. Included by ronde.hpp.
#pragma once

#include <ronde/ronde.h>

#include <string>
#include <utility>

namespace ronde {

// Something that the program does, in the timeline from the constructor to the destructor:
//   {
//     const ronde::MarkedSpan forward(engine.get(), "forward");
//     ...
//   }
// While the timeline is off nothing happens. The engine must be open as long.
//
// Thread safety: belongs to one thread. The constructor copies the name and throws nothing else.
class [[nodiscard]] MarkedSpan {
 public:
  MarkedSpan(ronde_engine* engine, std::string name) : engine_(engine), name_(std::move(name)) {
    ronde_engine_mark(engine_, RONDE_MARK_BEGIN, name_.c_str(), nullptr);
  }
  ~MarkedSpan() { ronde_engine_mark(engine_, RONDE_MARK_END, name_.c_str(), nullptr); }
  MarkedSpan(const MarkedSpan&) = delete;
  MarkedSpan& operator=(const MarkedSpan&) = delete;

 private:
  ronde_engine* engine_;
  std::string name_;
};

}  // namespace ronde
