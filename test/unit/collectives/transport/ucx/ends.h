// SPDX-License-Identifier: Apache-2.0
// Ends of UCX in one process that know each other.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/transport/end_table.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/ucx/end.h"

namespace ronde::collectives::ucx {

// Sets a variable of the environment while it lives.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    ::setenv(name, value, 1);
  }
  ~ScopedVariable() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

// An end, and how the rest of Ronde sees it: a transport that leaves the good-bye to the test.
struct OpenEnd {
  OpenEnd(int rank, int size) {
    host->rank = rank;
    host->size = size;
    host->peer_timeout_ns = base::Nanoseconds(std::chrono::seconds(60)).count();
    ronde_transport_info info{};
    auto opened = End::open(*host, info);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    end = std::move(*opened);
    transport.emplace(kTable, reinterpret_cast<ronde_transport_end*>(end.get()),
                      Transport::Options{.rank = rank, .size = size}, false, info.largest_tag);
  }

  std::unique_ptr<ronde_transport_host> host = std::make_unique<ronde_transport_host>();
  static constexpr ronde_transport kTable = [] {
    auto table = table_of<End>();
    table.close = [](ronde_transport_end*, std::int64_t) {};
    return table;
  }();
  std::unique_ptr<End> end;
  std::optional<Transport> transport;
};

inline std::vector<std::unique_ptr<OpenEnd>> connected_ends(int ranks) {
  std::vector<std::unique_ptr<OpenEnd>> ends;
  std::vector<std::span<const std::byte>> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    ends.push_back(std::make_unique<OpenEnd>(rank, ranks));
    addresses.push_back(ends.back()->end->address());
  }
  for (const auto& one : ends) EXPECT_TRUE(one->end->connect(addresses).ok());
  return ends;
}

}  // namespace ronde::collectives::ucx
