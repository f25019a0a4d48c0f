// SPDX-License-Identifier: Apache-2.0
// The operations that move bytes as they are: broadcast, alone and in groups, allgather,
// all-to-all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "test/hosts/operation_cases.h"

namespace ronde::testing {

class BroadcastCase final : public TwoBuffers {
 public:
  BroadcastCase(std::string name, DType dtype, Bytes input, Bytes expected, int root)
      : TwoBuffers(std::move(name), dtype, std::move(input), std::move(expected)), root_(root) {}

  void prepare() override { output_ = before_; }
  Work submit(Engine& engine) override {
    return with_type(dtype(), [&]<typename T>() {
      return engine.broadcast(name(), span_of<T>(output_), root_);
    });
  }
  [[nodiscard]] std::string check(const Work& /*done*/) const override {
    return compare(output_, expected_);
  }

 private:
  const int root_;
};

inline void add_broadcast(JobOfCases& job, DType dtype, std::int64_t elements, int root) {
  std::vector<Bytes> inputs = job.telling(dtype, elements);
  const std::string name =
      job.name("broadcast from " + std::to_string(root) + " of " + std::to_string(elements) + " " +
               std::string(base::name_of(dtype)));
  Bytes mine = inputs[static_cast<std::size_t>(job.rank())];
  job.add(std::make_unique<BroadcastCase>(name, dtype, std::move(mine),
                                          std::move(inputs[static_cast<std::size_t>(root)]), root));
}

inline void add_grouped_broadcast(JobOfCases& job, const Rows& lengths, int root) {
  std::vector<GroupCase::Tensor> tensors;
  for (const std::int64_t length : lengths) {
    std::vector<Bytes> inputs = job.telling(DType::kF32, length);
    Bytes mine = inputs[static_cast<std::size_t>(job.rank())];
    tensors.push_back({std::move(mine), std::move(inputs[static_cast<std::size_t>(root)])});
  }
  job.add(std::make_unique<GroupCase>(job.name("grouped broadcast from " + std::to_string(root)),
                                      std::move(tensors), root));
}

// Allgathers, and all-to-alls: those with splits, of which the received ones are known too.
class CollectingCase final : public Case {
 public:
  struct Exchange {
    Rows splits;  // none: submit none
    Rows received;
  };
  CollectingCase(std::string name, DType dtype, Bytes input, Bytes expected)
      : CollectingCase(std::move(name), dtype, std::move(input), std::move(expected), {}, false) {}
  CollectingCase(std::string name, DType dtype, Bytes input, Bytes expected, Exchange exchange,
                 bool is_exchange = true)
      : Case(std::move(name), dtype),
        input_(std::move(input)),
        before_(input_),
        expected_(std::move(expected)),
        exchange_(std::move(exchange)),
        is_exchange_(is_exchange) {}

  void prepare() override {}
  Work submit(Engine& engine) override {
    return with_type(dtype(), [&]<typename T>() {
      const std::span<const T> input = span_of<T>(std::as_const(input_));
      if (is_exchange_) return engine.all_to_all(name(), input, exchange_.splits);
      return engine.allgather(name(), input);
    });
  }
  [[nodiscard]] std::string check(const Work& done) const override {
    if (input_ != before_) return "the input has changed";
    if (is_exchange_ && done.received_splits() != exchange_.received) return "the received splits";
    const Bytes got = with_type(dtype(), [&]<typename T>() {
      const auto bytes = std::as_bytes(done.output<T>());
      return Bytes(bytes.begin(), bytes.end());
    });
    return compare(got, expected_);
  }

 private:
  const Bytes input_;
  const Bytes before_;
  const Bytes expected_;
  const Exchange exchange_;
  const bool is_exchange_;
};

inline void add_allgather(JobOfCases& job, DType dtype, const Rows& rows) {
  std::vector<Bytes> inputs = job.telling(dtype, rows);
  Bytes expected = joined(inputs);
  job.add(std::make_unique<CollectingCase>(
      job.name("allgather of " + std::string(base::name_of(dtype))), dtype,
      std::move(inputs[static_cast<std::size_t>(job.rank())]), std::move(expected)));
}

// sent[r]: the splits of rank r, which submits none where they are even.
inline void add_all_to_all(JobOfCases& job, DType dtype, const std::vector<Rows>& sent,
                           bool told = true) {
  Rows rows;
  for (const Rows& splits : sent) {
    rows.push_back(std::accumulate(splits.begin(), splits.end(), std::int64_t{0}));
  }
  std::vector<Bytes> inputs = job.telling(dtype, rows);
  const auto mine = static_cast<std::size_t>(job.rank());
  CollectingCase::Exchange exchange{told ? sent[mine] : Rows{}, {}};
  Bytes expected;
  for (std::size_t from = 0; from < sent.size(); ++from) {
    const std::int64_t before =
        std::accumulate(sent[from].begin(), sent[from].begin() + job.rank(), std::int64_t{0});
    exchange.received.push_back(sent[from][mine]);
    const Bytes part = part_of(inputs[from], dtype, before, sent[from][mine]);
    expected.insert(expected.end(), part.begin(), part.end());
  }
  job.add(std::make_unique<CollectingCase>(
      job.name("all-to-all of " + std::string(base::name_of(dtype))), dtype,
      std::move(inputs[mine]), std::move(expected), std::move(exchange)));
}

}  // namespace ronde::testing
