// SPDX-License-Identifier: Apache-2.0
// Names of devices, and the affinity of threads.
#include "bindings/trainer/fit/strategy/pinning.h"

#include <charconv>
#include <cstddef>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer {

Cores Cores::of_this_thread() {
  Cores cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores.chosen_ = set;
  return cores;
}

Cores Cores::of_device(const std::string& name) {
  constexpr std::size_t kPrefix = 5;  // of "/cpu:1"
  std::size_t number = 0;
  const char* const end = name.data() + name.size();
  if (name == "cpu") return {};
  const bool numbered = name.starts_with("/cpu:") && name.size() > kPrefix &&
                        std::from_chars(name.data() + kPrefix, end, number).ptr == end &&
                        name.size() < kPrefix + 10;
  if (!numbered) {
    throw TrainerError("there is no device \"" + name +
                           "\" for a strategy, whose models lie in host memory: use cpu or /cpu:0",
                       kExitConfiguration);
  }
  const Cores all = of_this_thread();
  if (!all.chosen_) return {};
  std::size_t seen = 0;
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &*all.chosen_) || seen++ != number) continue;
    Cores one;
    one.chosen_.emplace();
    CPU_ZERO(&*one.chosen_);
    CPU_SET(core, &*one.chosen_);
    return one;
  }
  throw TrainerError(
      "there is no device \"" + name + "\": this process may use " + std::to_string(seen) +
          " cores, which are /cpu:0 to /cpu:" + std::to_string(seen - 1) + "; cpu pins nothing",
      kExitConfiguration);
}

std::vector<Cores> Cores::of_devices(const std::vector<std::string>& names) {
  std::vector<Cores> cores;
  cores.reserve(names.size());
  for (const std::string& name : names) cores.push_back(of_device(name));
  return cores;
}

void Cores::pin_this_thread() const {
  if (chosen_) static_cast<void>(sched_setaffinity(0, sizeof *chosen_, &*chosen_));
}

}  // namespace ronde::trainer
