// SPDX-License-Identifier: Apache-2.0
// What every back end must do: plugin.h as tests. RONDE_DEVICE_PLUGIN names the library, which also
// exports a kit (kit.h). Values are small whole numbers, so that every order of summing gives the
// same.
#include <gmock/gmock.h>

#include <cmath>

#include "test/device/conformance.h"

namespace ronde::device_test {
namespace {

TEST_P(Conformance, OpensAndSaysWhatItIs) {
  EXPECT_EQ(Device::instance().plugin->version, RONDE_PLUGIN_VERSION);
  EXPECT_STRNE(Device::instance().plugin->name, "");
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    EXPECT_GT(std::strlen(rank.info().versions), 0U);
    EXPECT_GE(rank.info().device, 0);
  });
}

template <class T>
void expect_allreduce(DeviceRank& rank, std::int32_t op, const std::vector<std::size_t>& lengths,
                      bool in_place) {
  std::vector<std::unique_ptr<DeviceMemory>> inputs;
  std::vector<std::unique_ptr<DeviceMemory>> outputs;
  std::vector<ronde_plugin_tensor> tensors;
  for (const std::size_t length : lengths) {
    inputs.push_back(std::make_unique<DeviceMemory>(contribution<T>(rank.rank(), length)));
    outputs.push_back(std::make_unique<DeviceMemory>(std::vector<T>(length, T{77})));
    tensors.push_back(tensor_of(inputs.back()->get(),
                                in_place ? inputs.back()->get() : outputs.back()->get(), length));
  }
  ronde_plugin_batch batch = batch_of(RONDE_PLUGIN_ALLREDUCE, tensors, kDType<T>);
  batch.op = op;
  ASSERT_EQ(rank.finish(rank.execute(batch)), RONDE_PLUGIN_OK) << rank.text();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto values = (in_place ? inputs : outputs)[i]->values<T>();
    for (std::size_t place = 0; place < values.size(); ++place) {
      const double exact = folded(op, rank.size(), place);
      const double expected = std::is_integral_v<T> ? std::trunc(exact) : exact;
      ASSERT_NEAR(static_cast<double>(values[place]), expected, 1e-6 * std::abs(expected))
          << "op " << op << ", tensor " << i << ", place " << place;
    }
    if (!in_place) {
      EXPECT_EQ(inputs[i]->values<T>(), contribution<T>(rank.rank(), lengths[i]))
          << "an input changed";
    }
  }
}

TEST_P(Conformance, Allreduce) {
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    for (const bool in_place : {true, false}) {
      for (const std::int32_t op : {kAverage, kSum, kMin, kMax, kProduct}) {
        expect_allreduce<float>(rank, op, {1, 1000, 0, 33, 300'001}, in_place);
        expect_allreduce<double>(rank, op, {17}, in_place);
        expect_allreduce<std::int32_t>(rank, op, {5, 128}, in_place);
        expect_allreduce<std::int64_t>(rank, op, {3}, in_place);
      }
    }
  });
}

TEST_P(Conformance, ScalesAndCompresses) {
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    for (const std::int32_t compression : {0, kToBf16, kToF16}) {
      const DeviceMemory memory(contribution<float>(rank.rank(), 1003));
      const std::vector<ronde_plugin_tensor> tensors{tensor_of(memory.get(), memory.get(), 1003)};
      ronde_plugin_batch batch = batch_of(RONDE_PLUGIN_ALLREDUCE, tensors);
      batch.prescale = 0.5;
      batch.postscale = 4.0;
      batch.compression = compression;
      ASSERT_EQ(rank.finish(rank.execute(batch)), RONDE_PLUGIN_OK) << rank.text();
      const auto values = memory.values<float>();
      for (std::size_t place = 0; place < values.size(); ++place) {
        ASSERT_EQ(values[place], 2 * folded(kSum, rank.size(), place)) << compression;
      }
    }
  });
}

TEST_P(Conformance, BroadcastFromEveryRoot) {
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    for (std::int32_t root = 0; root < rank.size(); ++root) {
      const DeviceMemory memory(contribution<float>(10 * rank.rank(), 777));
      const std::vector<ronde_plugin_tensor> tensors{tensor_of(memory.get(), memory.get(), 777)};
      ronde_plugin_batch batch = batch_of(RONDE_PLUGIN_BROADCAST, tensors);
      batch.root = root;
      ASSERT_EQ(rank.finish(rank.execute(batch)), RONDE_PLUGIN_OK) << rank.text();
      EXPECT_EQ(memory.values<float>(), contribution<float>(10 * root, 777)) << "root " << root;
    }
  });
}

// Blocks of different lengths, one of them empty.
std::size_t length_of(std::int32_t rank) {
  return rank == 1 ? 0 : 100 + 37 * static_cast<std::size_t>(rank);
}

TEST_P(Conformance, AllgatherAndReduceScatterOfUnevenBlocks) {
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    const DeviceMemory own(contribution<float>(rank.rank(), length_of(rank.rank())));
    std::vector<std::unique_ptr<DeviceMemory>> blocks;
    std::vector<ronde_plugin_tensor> gather;
    std::vector<ronde_plugin_tensor> scatter;
    const DeviceMemory sum(std::vector<float>(length_of(rank.rank())));
    for (std::int32_t of = 0; of < rank.size(); ++of) {
      blocks.push_back(std::make_unique<DeviceMemory>(std::vector<float>(length_of(of))));
      const bool mine = of == rank.rank();
      gather.push_back(tensor_of(mine ? own.get() : nullptr, blocks.back()->get(), length_of(of)));
      scatter.push_back(tensor_of(blocks.back()->get(), mine ? sum.get() : nullptr, length_of(of)));
    }
    ASSERT_EQ(rank.finish(rank.execute(batch_of(RONDE_PLUGIN_ALLGATHER, gather))), RONDE_PLUGIN_OK)
        << rank.text();
    for (std::int32_t of = 0; of < rank.size(); ++of) {
      EXPECT_EQ(blocks[static_cast<std::size_t>(of)]->values<float>(),
                contribution<float>(of, length_of(of)));
    }
    ASSERT_EQ(rank.finish(rank.execute(batch_of(RONDE_PLUGIN_REDUCE_SCATTER, scatter))),
              RONDE_PLUGIN_OK)
        << rank.text();
    std::vector<float> expected = contribution<float>(rank.rank(), length_of(rank.rank()));
    for (float& value : expected) value *= static_cast<float>(rank.size());
    EXPECT_EQ(sum.values<float>(), expected);
  });
}

TEST_P(Conformance, AllToAllAndBarrier) {
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    const auto rows = [](std::int32_t from, std::int32_t to) {
      return static_cast<std::size_t>(from == to ? 0 : 10 + 3 * from + to);
    };
    std::vector<std::unique_ptr<DeviceMemory>> memory;
    std::vector<ronde_plugin_tensor> tensors;
    for (std::int32_t to = 0; to < rank.size(); ++to) {
      memory.push_back(std::make_unique<DeviceMemory>(
          contribution<float>(rank.rank() + 2 * to, rows(rank.rank(), to))));
      tensors.push_back(tensor_of(memory.back()->get(), nullptr, rows(rank.rank(), to)));
    }
    for (std::int32_t from = 0; from < rank.size(); ++from) {
      memory.push_back(std::make_unique<DeviceMemory>(std::vector<float>(rows(from, rank.rank()))));
      tensors.push_back(tensor_of(nullptr, memory.back()->get(), rows(from, rank.rank())));
    }
    ASSERT_EQ(rank.finish(rank.execute(batch_of(RONDE_PLUGIN_ALL_TO_ALL, tensors))),
              RONDE_PLUGIN_OK)
        << rank.text();
    for (std::int32_t from = 0; from < rank.size(); ++from) {
      EXPECT_EQ(memory[static_cast<std::size_t>(rank.size() + from)]->values<float>(),
                contribution<float>(from + 2 * rank.rank(), rows(from, rank.rank())));
    }
    EXPECT_EQ(rank.finish(rank.execute(batch_of(RONDE_PLUGIN_BARRIER, {}))), RONDE_PLUGIN_OK);
  });
}

TEST_P(Conformance, AbortEndsWhatWaitsForOthers) {
  if (GetParam() == 1) return;  // nobody to wait for
  job_.run([this](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    if (rank.rank() == 0) {
      job_.meet();
    } else {
      const DeviceMemory memory(contribution<float>(rank.rank(), 100));
      const std::vector<ronde_plugin_tensor> tensors{tensor_of(memory.get(), memory.get(), 100)};
      ronde_plugin_work* const work = rank.execute(batch_of(RONDE_PLUGIN_ALLREDUCE, tensors));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(rank.poll(work), RONDE_PLUGIN_PENDING) << "rank 0 never came";
      job_.meet();  // the abort of one may end the works of the others
      const auto begin = std::chrono::steady_clock::now();
      rank.plugin().abort(rank.engine(), "rank 0 is dead");
      EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_FAILED);
      EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
      EXPECT_THAT(rank.text(), testing::HasSubstr("rank 0 is dead"));
      rank.close();
    }
    job_.meet();
  });
}

TEST_P(Conformance, TellsHostFromDeviceMemoryAndRefusesACapturedStream) {
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    const ronde_device_kit& kit = *Device::instance().kit;
    const DeviceMemory device(100);
    const DeviceMemory managed(100, true);
    const std::vector<char> host(100);
    const auto kind_of = [&rank](const void* pointer) {
      ronde_plugin_memory memory{-1, -2};
      Text text{};
      EXPECT_EQ(rank.plugin().classify(rank.engine(), pointer, &memory, text.data(), text.size()),
                RONDE_PLUGIN_OK)
          << text.data();
      EXPECT_EQ(memory.device >= 0, memory.kind != RONDE_MEMORY_HOST);
      return memory.kind;
    };
    EXPECT_EQ(kind_of(host.data()), RONDE_MEMORY_HOST);
    EXPECT_EQ(kind_of(device.get()), RONDE_MEMORY_DEVICE);
    EXPECT_EQ(kind_of(static_cast<char*>(device.get()) + 99), RONDE_MEMORY_DEVICE);
    EXPECT_EQ(kind_of(managed.get()), RONDE_MEMORY_MANAGED);
    void* const stream = kit.make_stream();
    const auto check = [&](Text& text) {
      return rank.plugin().check_stream(rank.engine(), stream, text.data(), text.size());
    };
    Text text{};
    EXPECT_EQ(check(text), RONDE_PLUGIN_OK);
    kit.begin_capture(stream);
    EXPECT_EQ(check(text), RONDE_PLUGIN_INVALID);
    EXPECT_THAT(text.data(), testing::HasSubstr("capture"));
    kit.end_capture(stream);
    EXPECT_EQ(check(text), RONDE_PLUGIN_OK);
    kit.free_stream(stream);
  });
}

TEST_P(Conformance, StagesPartsOfATensor) {
  job_.run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    const ronde_device_kit& kit = *Device::instance().kit;
    const auto values = contribution<float>(rank.rank(), 1000);
    const DeviceMemory source(values);
    const DeviceMemory input(std::vector<float>(1000));
    const DeviceMemory output(std::vector<float>(1000, -1.0F));
    void* const stream = kit.make_stream();
    kit.delay(stream, 20);
    kit.copy(stream, input.get(), source.get(), 1000 * sizeof(float));
    ronde_plugin_mark* const mark = rank.mark(stream);
    const ronde_plugin_tensor tensor = tensor_of(input.get(), output.get(), 1000, mark);
    Text text{};
    void* host = nullptr;
    ASSERT_EQ(rank.plugin().allocate_host(rank.engine(), 400 * sizeof(float), &host, text.data(),
                                          text.size()),
              RONDE_PLUGIN_OK);
    ronde_plugin_copy copy{sizeof copy, &tensor, 300, 400, kF32, 0, host};
    ronde_plugin_work* work = nullptr;
    ASSERT_EQ(rank.plugin().copy_out(rank.engine(), &copy, &work, text.data(), text.size()),
              RONDE_PLUGIN_OK);
    ASSERT_EQ(rank.finish(work), RONDE_PLUGIN_OK);
    auto* const staged = static_cast<float*>(host);
    EXPECT_EQ(std::vector<float>(staged, staged + 400),
              std::vector<float>(values.begin() + 300, values.begin() + 700));
    for (int i = 0; i < 400; ++i) staged[i] += 0.5F;
    ASSERT_EQ(rank.plugin().copy_in(rank.engine(), &copy, &work, text.data(), text.size()),
              RONDE_PLUGIN_OK);
    ASSERT_EQ(rank.finish(work), RONDE_PLUGIN_OK);
    const auto result = output.values<float>();
    for (std::size_t i = 0; i < 1000; ++i) {
      ASSERT_EQ(result[i], i < 300 || i >= 700 ? -1.0F : values[i] + 0.5F) << i;
    }
    rank.plugin().free_host(rank.engine(), host);
    rank.unmark(mark);
    kit.free_stream(stream);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Conformance, testing::Values(1, 2, 3));

}  // namespace
}  // namespace ronde::device_test
