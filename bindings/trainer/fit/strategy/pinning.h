// SPDX-License-Identifier: Apache-2.0
// Devices of a strategy by their names, which are cores of this host.
#pragma once

#include <sched.h>

#include <optional>
#include <string>
#include <vector>

namespace ronde::trainer {

// The cores that a thread may run on. Thread safety: a value.
class Cores {
 public:
  // "/cpu:1": the second of those that this process may use; "cpu": any of them. Throws
  // TrainerError for another name, and for a core that there is not.
  static Cores of_device(const std::string& name);
  static std::vector<Cores> of_devices(const std::vector<std::string>& names);
  static Cores of_this_thread();

  [[nodiscard]] bool are_some() const noexcept { return chosen_.has_value(); }
  // The calling thread runs on these from now on, and may use what it had before where they are
  // not chosen.
  void pin_this_thread() const;

 private:
  std::optional<cpu_set_t> chosen_;
};

// Pins the calling thread while this lives.
class Pinned {
 public:
  explicit Pinned(const Cores& cores) {
    if (!cores.are_some()) return;
    before_ = Cores::of_this_thread();
    cores.pin_this_thread();
  }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  ~Pinned() { before_.pin_this_thread(); }

 private:
  Cores before_;
};

}  // namespace ronde::trainer
