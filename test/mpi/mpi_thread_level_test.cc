// SPDX-License-Identifier: Apache-2.0
// Programs that started MPI for less than SERIALIZED: an engine that needs MPI is driven by its
// caller. MPI can be started once in a process, so there is one test; its levels take turns by the
// number of ranks.
#include <gtest/gtest.h>
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/engine/engine.h"
#include "test/support/engines.h"

namespace ronde::runtime {
namespace {

using testing::allreduce_of;

void allreduce(Engine& engine, const std::string& name, int ranks) {
  std::vector<float> data(100000, static_cast<float>(engine.rank() + 1));
  const auto work = engine.submit(allreduce_of(name, data));
  ASSERT_TRUE(work.ok()) << work.status().message();
  const base::Status done = engine.wait(**work);
  ASSERT_TRUE(done.ok()) << done.message();
  ASSERT_EQ(data[99999], static_cast<float>(ranks * (ranks + 1) / 2));
}

// Asking makes progress where no background thread does.
void allreduce_by_asking(Engine& engine, const std::string& name, int ranks) {
  std::vector<float> data(100000, static_cast<float>(engine.rank() + 1));
  const auto work = engine.submit(allreduce_of(name, data));
  ASSERT_TRUE(work.ok()) << work.status().message();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!engine.poll(**work)) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::yield();
  }
  ASSERT_EQ(data[99999], static_cast<float>(ranks * (ranks + 1) / 2));
}

// A thread that did not open the engine may submit, but not wait.
void submit_elsewhere(Engine& engine, bool may_wait) {
  std::vector<float> data(10, 1.0F);
  Engine::WorkPtr work;
  std::thread other([&] {
    auto submitted = engine.submit(allreduce_of("elsewhere", data));
    ASSERT_TRUE(submitted.ok());
    work = *submitted;
    const base::Status waited = engine.wait(*work);
    EXPECT_EQ(waited.ok(), may_wait) << waited.message();
    if (may_wait) return;
    EXPECT_EQ(waited.code(), base::Code::kUnsupported);
    EXPECT_NE(waited.message().find("only the thread that opened the engine may wait"),
              std::string::npos);
  });
  other.join();
  EXPECT_TRUE(engine.wait(*work).ok());
}

// Whoever frees the memory in such a thread sleeps until the other has driven so far.
void settle_elsewhere(Engine& engine) {
  std::vector<float> data(10, 1.0F);
  std::promise<Engine::WorkPtr> submitted;
  std::atomic<bool> settled{false};
  std::thread other([&] {
    auto work = engine.submit(allreduce_of("settled elsewhere", data));
    ASSERT_TRUE(work.ok());
    submitted.set_value(*work);
    engine.settle(**work, std::chrono::seconds(20));
    settled.store(true);
  });
  const Engine::WorkPtr work = submitted.get_future().get();
  EXPECT_TRUE(engine.wait(*work).ok());
  other.join();
  EXPECT_TRUE(settled.load());
  EXPECT_EQ(data[9], static_cast<float>(engine.size()));
}

std::shared_ptr<Engine> open_engine(const std::string& algorithm) {
  const auto open = [](const base::Config& config, const base::Clock& clock) {
    return open_process_job(nullptr, "", config, clock);
  };
  const auto engine =
      Engine::open(open, {"RONDE_ALGORITHM=" + algorithm}, std::make_shared<base::SteadyClock>());
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? *engine : nullptr;
}

// A close that may not drive fails the job, and the others hear of it at once.
void close_elsewhere(Engine& engine) {
  const bool closes = engine.rank() == engine.size() - 1;
  std::vector<float> data(10, 1.0F);
  const auto work = engine.submit(allreduce_of(closes ? "of the last" : "of the others", data));
  ASSERT_TRUE(work.ok());
  const auto began = std::chrono::steady_clock::now();
  if (closes) {
    base::Status closed;
    std::thread([&] { closed = engine.close(); }).join();
    EXPECT_EQ(closed.code(), base::Code::kUnsupported) << closed.message();
    EXPECT_TRUE((*work)->completion.done());
  }
  const base::Status heard = engine.wait(**work);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(15));
  EXPECT_EQ(heard.code(), base::Code::kClosed) << heard.message();
  EXPECT_NE(heard.message().find("closed its engine in a thread that may not"), std::string::npos)
      << heard.message();
  engine.close().ignore();
}

void finalize_before_close() {
  const auto engine = open_engine("auto");
  ASSERT_NE(engine, nullptr);
  MPI_Finalize();
  const base::Status closed = engine->close();
  EXPECT_NE(closed.message().find("close every engine before MPI_Finalize"), std::string::npos)
      << closed.message();
}

TEST(MpiThreadLevel, BelowSerializedTheCallerDrives) {
  int ranks = 0;
  int provided = -1;
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  const int level =
      size != nullptr && std::string(size) == "2" ? MPI_THREAD_SINGLE : MPI_THREAD_FUNNELED;
  MPI_Init_thread(nullptr, nullptr, level, &provided);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const bool ring : {true, false}) {
    const auto engine = open_engine(ring ? "ring" : "auto");
    ASSERT_NE(engine, nullptr);
    for (int step = 0; step < 50; ++step) allreduce(*engine, "x", ranks);
    for (int step = 0; step < 20; ++step) allreduce_by_asking(*engine, "asked for", ranks);
    // Tensors of other threads go on only while this thread is in a call.
    if (engine->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    allreduce(*engine, "late", ranks);
    // The board of a host needs no MPI: there the engine has its own thread.
    submit_elsewhere(*engine, !ring || provided >= MPI_THREAD_SERIALIZED);
    settle_elsewhere(*engine);
    const base::Status closed = engine->close();
    EXPECT_TRUE(closed.ok()) << closed.message();
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    const auto engine = open_engine("ring");
    ASSERT_NE(engine, nullptr);
    close_elsewhere(*engine);
  }
  finalize_before_close();
}

}  // namespace
}  // namespace ronde::runtime
