// SPDX-License-Identifier: Apache-2.0
// Programs that started MPI for less than SERIALIZED: an engine that needs MPI is driven by its
// caller. MPI can be started once in a process, so there is one test; its levels take turns by the
// number of ranks.
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
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

TEST(MpiThreadLevel, BelowSerializedTheCallerDrives) {
  int ranks = 0;
  int provided = -1;
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  const int level =
      size != nullptr && std::string(size) == "2" ? MPI_THREAD_SINGLE : MPI_THREAD_FUNNELED;
  MPI_Init_thread(nullptr, nullptr, level, &provided);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const bool ring : {true, false}) {
    const auto open = [](const base::Config& config, const base::Clock& clock) {
      return open_process_job(nullptr, config, clock);
    };
    const auto engine =
        Engine::open(open, {std::string("RONDE_ALGORITHM=") + (ring ? "ring" : "auto")},
                     std::make_shared<base::SteadyClock>());
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    for (int step = 0; step < 50; ++step) allreduce(**engine, "x", ranks);
    // Tensors of other threads go on only while this thread is in a call.
    if ((*engine)->rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    allreduce(**engine, "late", ranks);
    // The board of a host needs no MPI: there the engine has its own thread.
    submit_elsewhere(**engine, !ring || provided >= MPI_THREAD_SERIALIZED);
    const base::Status closed = (*engine)->close();
    EXPECT_TRUE(closed.ok()) << closed.message();
  }
  MPI_Finalize();
}

}  // namespace
}  // namespace ronde::runtime
