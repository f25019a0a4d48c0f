// SPDX-License-Identifier: Apache-2.0
// ronderun's own standard output and error: what the ranks print and what ronderun says, written
// without ever blocking. A log collector that has stopped reading, or Ctrl-S in a terminal, must
// not keep a signal from the ranks.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace ronde::launcher {

// What finds no room waits here, in its order. Owns descriptors of its own for pipes and terminals,
// for O_NONBLOCK belongs to everyone who has inherited a descriptor.
//
// Thread safety: none.
class Output {
 public:
  Output();
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Has bytes printed to the standard error, or else the standard output.
  void add(bool to_error, std::string_view bytes);
  // Prints "ronderun: " and the text as a line on the standard error, at once if there is room.
  void say(const std::string& text);
  // Tells whether so much waits that no more should be read for it.
  [[nodiscard]] bool full() const;

  // Adds what to wait for, and looks at what poll() has said about it.
  void add_to(std::vector<pollfd>& entries) const;
  void serve(const std::vector<pollfd>& entries);
  // Prints what waits, for as long as it moves on; a few seconds otherwise.
  void flush(const base::Clock& clock);

  // Tells whether the reader of either went away while something was printed.
  [[nodiscard]] bool reader_gone() const { return sinks_[0].gone || sinks_[1].gone; }
  // Why something could not be printed, as on a disk that is full; empty: all was, or nobody read.
  [[nodiscard]] std::string error() const;

 private:
  struct Sink {
    explicit Sink(int number) : fd(number) {}
    int fd;
    bool own = false;  // the descriptor is ours to close
    std::string pending{};
    std::size_t written = 0;  // of it
    [[nodiscard]] std::size_t left() const { return pending.size() - written; }
    bool gone = false;
    int error = 0;  // the first errno of another kind
  };

  static void open_own(Sink& sink);
  static void write_some(Sink& sink);

  std::array<Sink, 2> sinks_{Sink(1), Sink(2)};
};

}  // namespace ronde::launcher
