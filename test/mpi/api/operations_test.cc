// SPDX-License-Identifier: Apache-2.0
// Every operation on every dtype through libronde.so, between processes, against a serial oracle,
// by the algorithm that Ronde chooses and by the ring.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <ronde/ronde.hpp>

#include "test/mpi/api/serial_values.h"

namespace serial_values {
namespace {

class Operations : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    ::setenv("RONDE_ALGORITHM", GetParam(), 1);
    engine_ = std::make_unique<ronde::Engine>();
  }
  void TearDown() override {
    engine_->close();
    ::unsetenv("RONDE_ALGORITHM");
  }
  [[nodiscard]] ronde_engine* engine() const { return engine_->get(); }
  [[nodiscard]] int rank() const { return engine_->rank(); }
  [[nodiscard]] int ranks() const { return engine_->size(); }

  // A request over `count` elements; `shape` must outlive it.
  static ronde_request request_of(const char* name, const DType& type, const std::int64_t* shape) {
    ronde_request request;
    ronde_request_init(&request);
    request.name = name;
    request.dtype = type.dtype;
    request.shape = shape;
    request.dimensions = 1;
    return request;
  }
  static void ok(ronde_status status, const ronde_error* error) {
    ASSERT_EQ(status, RONDE_OK) << ronde_error_message(error);
  }
  // The result that belongs to a work.
  static Values output_of(const DType& type, const ronde_work* work) {
    const void* data = nullptr;
    const std::int64_t* shape = nullptr;
    std::int32_t dimensions = 0;
    std::int32_t dtype = -1;
    EXPECT_EQ(ronde_work_output(work, &data, &shape, &dimensions, &dtype, nullptr), RONDE_OK);
    EXPECT_EQ(dtype, type.dtype);
    EXPECT_EQ(dimensions, 1);
    return decode(type, data, static_cast<std::size_t>(shape[0]));
  }

  std::unique_ptr<ronde::Engine> engine_;
};

TEST_P(Operations, Allreduce) {
  for (const DType& type : kDTypes) {
    for (const ronde_op op : kOps) {
      if (!is_defined(type, op)) continue;
      for (const std::size_t count : {0U, 1U, 7U, 1000U, 20'011U}) {
        SCOPED_TRACE(std::string(type.name) + " op " + std::to_string(op) + ", " +
                     std::to_string(count) + " elements");
        const bool in_place = count % 2 == 1;
        const auto length = static_cast<std::int64_t>(count);
        Bytes input = encode(type, contribution(type, rank(), count));
        const Bytes before = input;
        Bytes output(input.size());
        ronde_request request = request_of("allreduce", type, &length);
        request.op = op;
        request.input = in_place ? nullptr : input.data();
        request.output = in_place ? input.data() : output.data();
        ronde_error* error = nullptr;
        ok(ronde_allreduce(engine(), &request, &error), error);
        expect_values(type, decode(type, request.output, count), reduced(type, op, ranks(), count),
                      op == RONDE_AVERAGE);
        if (!in_place) {
          EXPECT_EQ(input, before);
        }
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Operations, ReduceScatter) {
  for (const DType& type : kDTypes) {
    for (const ronde_op op : kOps) {
      if (!is_defined(type, op)) continue;
      for (const std::int64_t scale : {0, 1, 500}) {
        SCOPED_TRACE(std::string(type.name) + " op " + std::to_string(op) + ", scale " +
                     std::to_string(scale));
        const std::vector<std::int64_t> splits = uneven(ranks(), scale);
        const std::int64_t length = total(splits);
        const auto count = static_cast<std::size_t>(length);
        const Bytes input = encode(type, contribution(type, rank(), count));
        const auto mine = static_cast<std::size_t>(rank());
        const auto share = static_cast<std::size_t>(splits[mine]);
        Bytes output(share * type.size);
        ronde_request request = request_of("reduce_scatter", type, &length);
        request.op = op;
        request.input = input.data();
        request.output = output.data();
        request.splits = splits.data();
        request.split_count = ranks();
        ronde_error* error = nullptr;
        ok(ronde_reduce_scatter(engine(), &request, &error), error);
        const Values all = reduced(type, op, ranks(), count);
        std::int64_t first = 0;
        for (std::size_t r = 0; r < mine; ++r) first += splits[r];
        expect_values(type, decode(type, output.data(), share),
                      {all.begin() + first, all.begin() + first + splits[mine]},
                      op == RONDE_AVERAGE);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(Operations, Broadcast) {
  for (const DType& type : kDTypes) {
    for (int root = 0; root < ranks(); ++root) {
      SCOPED_TRACE(std::string(type.name) + " root " + std::to_string(root));
      const std::int64_t length = 3001;
      Bytes data = encode(type, contribution(type, rank(), 3001));
      ronde_request request = request_of("broadcast", type, &length);
      request.output = data.data();
      request.root = root;
      ronde_error* error = nullptr;
      ok(ronde_broadcast(engine(), &request, &error), error);
      expect_values(type, decode(type, data.data(), 3001), contribution(type, root, 3001), false);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Operations, Allgather) {
  for (const DType& type : kDTypes) {
    for (const std::size_t scale : {0U, 1U, 1500U}) {
      SCOPED_TRACE(std::string(type.name) + " scale " + std::to_string(scale));
      const auto rows = [&](int r) { return static_cast<std::size_t>(r) % 3 * scale; };
      const auto length = static_cast<std::int64_t>(rows(rank()));
      const Bytes input = encode(type, contribution(type, rank(), rows(rank())));
      ronde_request request = request_of("allgather", type, &length);
      request.input = input.data();
      ronde_error* error = nullptr;
      ronde_work* work = nullptr;
      ok(ronde_allgather(engine(), &request, &work, &error), error);
      Values expected;
      for (int r = 0; r < ranks(); ++r) {
        const Values theirs = contribution(type, r, rows(r));
        expected.insert(expected.end(), theirs.begin(), theirs.end());
      }
      expect_values(type, output_of(type, work), expected, false);
      ronde_work_release(work);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Operations, AllToAll) {
  for (const DType& type : kDTypes) {
    for (const std::int64_t scale : {0, 1, 700}) {
      SCOPED_TRACE(std::string(type.name) + " scale " + std::to_string(scale));
      const auto sent = [&](int from, int to) { return (from * 2 + to) % 4 * scale; };
      std::vector<std::int64_t> splits;
      std::vector<std::int64_t> received;
      Values values;
      Values expected;
      for (int peer = 0; peer < ranks(); ++peer) {
        splits.push_back(sent(rank(), peer));
        received.push_back(sent(peer, rank()));
        // Both sides know what the part between them is.
        const Values out =
            contribution(type, rank() + 3 * peer, static_cast<std::size_t>(splits.back()));
        const Values in =
            contribution(type, peer + 3 * rank(), static_cast<std::size_t>(received.back()));
        values.insert(values.end(), out.begin(), out.end());
        expected.insert(expected.end(), in.begin(), in.end());
      }
      const Bytes input = encode(type, values);
      const std::int64_t length = total(splits);
      ronde_request request = request_of("all_to_all", type, &length);
      request.input = input.data();
      request.splits = splits.data();
      request.split_count = ranks();
      ronde_error* error = nullptr;
      ronde_work* work = nullptr;
      ok(ronde_all_to_all(engine(), &request, &work, &error), error);
      expect_values(type, output_of(type, work), expected, false);
      const std::int64_t* got = nullptr;
      std::int32_t count = 0;
      ok(ronde_work_received_splits(work, &got, &count, &error), error);
      EXPECT_EQ(std::vector<std::int64_t>(got, got + count), received);
      ronde_work_release(work);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Operations, Groups) {
  for (const DType& type : kDTypes) {
    SCOPED_TRACE(type.name);
    const ronde_op op = type.dtype == RONDE_BOOL ? RONDE_MAX : RONDE_SUM;
    const std::vector<std::int64_t> lengths{5, 0, 4000, 1};
    const std::vector<std::string> names{"g0", "g1", "g2", "g3"};
    std::vector<Bytes> data;
    std::vector<ronde_request> requests;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      data.push_back(
          encode(type, contribution(type, rank(), static_cast<std::size_t>(lengths[i]))));
      requests.push_back(request_of(names[i].c_str(), type, &lengths[i]));
      requests.back().output = data.back().data();
      requests.back().op = op;
    }
    const auto count = static_cast<std::int32_t>(requests.size());
    ronde_error* error = nullptr;
    ok(ronde_grouped_allreduce(engine(), requests.data(), count, &error), error);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto length = static_cast<std::size_t>(lengths[i]);
      expect_values(type, decode(type, data[i].data(), length), reduced(type, op, ranks(), length),
                    false);
      data[i] = encode(type, contribution(type, rank(), length));
      requests[i].output = data[i].data();
      requests[i].root = ranks() - 1;
    }
    ok(ronde_grouped_broadcast(engine(), requests.data(), count, &error), error);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const auto length = static_cast<std::size_t>(lengths[i]);
      expect_values(type, decode(type, data[i].data(), length),
                    contribution(type, ranks() - 1, length), false);
    }
    if (HasFailure()) return;
  }
}

TEST_P(Operations, TheFacade) {
  ronde::Engine& engine = *engine_;
  const auto n = static_cast<std::size_t>(ranks());
  const auto sum = static_cast<float>(ranks() * (ranks() + 1) / 2);
  std::vector<float> input(n * 10 + 1, static_cast<float>(rank() + 1));
  std::vector<float> share(rank() == 0 ? 11 : 10);
  engine.reduce_scatter_blocking("rs", std::span(input), std::span(share), ronde::sum);
  EXPECT_EQ(share, std::vector<float>(share.size(), sum));
  ronde::ReduceScatterOptions options;
  options.compression = ronde::Compression::kBf16;
  options.splits.assign(n, 0);
  options.splits[n - 1] = static_cast<std::int64_t>(input.size());
  std::vector<float> last(rank() == ranks() - 1 ? input.size() : 0);
  engine.reduce_scatter("rs", std::span(input), std::span(last), ronde::sum, options).wait();
  EXPECT_EQ(last, std::vector<float>(last.size(), sum));

  const std::vector<std::int32_t> parcels(n * 2, rank());
  const ronde::Work work = engine.all_to_all_blocking("x", std::span(parcels));
  const auto received = work.output<std::int32_t>();
  ASSERT_EQ(received.size(), n * 2);
  for (std::size_t i = 0; i < n * 2; ++i) EXPECT_EQ(received[i], static_cast<int>(i / 2));
  EXPECT_EQ(work.received_splits(), std::vector<std::int64_t>(n, 2));

  std::vector<float> a(100, 1.0F);
  std::vector<float> b(3, static_cast<float>(rank()));
  ronde::AllreduceOptions compressed;
  compressed.compression = ronde::Compression::kF16;
  engine.grouped_allreduce<float>({{"a", a}, {"b", b}}, ronde::sum, compressed).wait();
  EXPECT_EQ(a, std::vector<float>(100, static_cast<float>(ranks())));
  EXPECT_EQ(b[2], static_cast<float>(ranks() * (ranks() - 1) / 2));
  engine.grouped_broadcast_blocking<float>({{"b", b}, {"a", a}}, 0);

  std::vector<std::uint8_t> flags{static_cast<std::uint8_t>(1U << static_cast<unsigned>(rank()))};
  engine.allreduce_blocking("bits", std::span(flags), ronde::bor);
  EXPECT_EQ(flags[0], (1U << n) - 1);
}

INSTANTIATE_TEST_SUITE_P(By, Operations, ::testing::Values("auto", "ring", "direct", "gather"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace serial_values
