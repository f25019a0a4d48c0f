// SPDX-License-Identifier: Apache-2.0
// Named cases, each in processes of its own: so that one that ends badly takes no other with it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "test/gpu/forked_job.h"

namespace ronde::gpu_test {

// How several ranks come to share one GPU. Over NCCL each has a host id of its own, so that NCCL
// does not see it; a rank that keeps its host's id is found out, and tensors are staged.
enum class Sharing { kNccl, kStaged };

struct Case {
  std::string name;
  int ranks;
  Sharing sharing;
  // 0: all is well.
  std::function<int(int rank, int ranks, Meeting& meeting)> run;
};

// Before the first call of CUDA or NCCL in this process.
inline void set_environment(int rank, Sharing sharing) {
  const char* const settings[][2] = {
      {"NCCL_P2P_DISABLE", "1"},  {"NCCL_SHM_DISABLE", "1"},       {"NCCL_NET", "Socket"},
      {"NCCL_IB_DISABLE", "1"},   {"NCCL_MNNVL_ENABLE", "0"},      {"NCCL_NVLS_ENABLE", "0"},
      {"NCCL_RAS_ENABLE", "0"},   {"NCCL_GIN_ENABLE", "0"},        {"NCCL_MAX_CTAS", "4"},
      {"NCCL_PROTO", "Simple"},   {"NCCL_ALGO", "Ring"},           {"NCCL_SOCKET_IFNAME", "lo"},
      {"NCCL_CUMEM_ENABLE", "0"}, {"NCCL_CUMEM_HOST_ENABLE", "0"}, {"NCCL_DEBUG", "WARN"}};
  for (const auto& [name, value] : settings) ::setenv(name, value, 0);
  if (sharing == Sharing::kNccl) {
    ::setenv("NCCL_HOSTID", ("rank" + std::to_string(rank)).c_str(), 1);
  } else {
    ::unsetenv("NCCL_HOSTID");
  }
}

// The exit code of a program of such cases; `only`: names of some; empty: all. `has_device` is
// asked in a process of its own: a parent that has touched CUDA must not fork.
inline int run_cases(std::span<const Case> cases, std::span<char* const> only,
                     bool (*has_device)()) {
  const auto ask = [has_device](int, Meeting&) { return has_device() ? 0 : 1; };
  if (!run_ranks(1, std::chrono::seconds(60), ask)) {
    std::printf("no GPU: skipped\n");
    return 77;
  }
  bool all = true;
  int found = 0;
  for (const Case& one : cases) {
    const auto is_named = [&one](const char* name) { return one.name == name; };
    if (!only.empty() && std::none_of(only.begin(), only.end(), is_named)) continue;
    ++found;
    const bool passed =
        run_ranks(one.ranks, std::chrono::seconds(180), [&one](int rank, Meeting& meeting) {
          if (one.ranks > 1) set_environment(rank, one.sharing);
          return one.run(rank, one.ranks, meeting);
        });
    std::printf("result %s=%s\n", one.name.c_str(), passed ? "passed" : "FAILED");
    std::fflush(stdout);
    all = all && passed;
  }
  const bool known = only.empty() || std::cmp_equal(found, only.size());
  if (!known) std::printf("there is no such case: see the names of the results\n");
  return all && known ? 0 : 1;
}

}  // namespace ronde::gpu_test
