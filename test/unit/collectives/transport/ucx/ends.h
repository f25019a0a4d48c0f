// SPDX-License-Identifier: Apache-2.0
// Ends of UCX in one process that know each other.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

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

// An end as the rest of Ronde sees it.
class EndTransport final : public Transport {
 public:
  EndTransport(int rank, int size) : rank_(rank), size_(size) {
    auto opened = End::open({.rank = rank, .size = size});
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    end_ = std::move(*opened);
  }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  base::Result<Request> send(int peer, int tag, std::span<const std::byte> data) override {
    return end_->send(peer, tag, data);
  }
  base::Result<Request> receive(int peer, int tag, std::span<std::byte> data) override {
    return end_->receive(peer, tag, data);
  }
  base::Result<bool> test(Request request) override { return end_->test(request); }
  [[nodiscard]] bool needs_polling() const override { return false; }
  [[nodiscard]] int outstanding() const override { return end_->outstanding(); }
  [[nodiscard]] End& end() { return *end_; }

 private:
  int rank_;
  int size_;
  std::unique_ptr<End> end_;
};

inline std::vector<std::unique_ptr<EndTransport>> connected_ends(int ranks) {
  std::vector<std::unique_ptr<EndTransport>> ends;
  std::vector<std::span<const std::byte>> addresses;
  for (int rank = 0; rank < ranks; ++rank) {
    ends.push_back(std::make_unique<EndTransport>(rank, ranks));
    addresses.push_back(ends.back()->end().address());
  }
  for (const auto& end : ends) EXPECT_TRUE(end->end().connect(addresses).ok());
  return ends;
}

}  // namespace ronde::collectives::ucx
