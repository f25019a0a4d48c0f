// SPDX-License-Identifier: Apache-2.0
// Whole engines with a plug-in, each in a process of its own: everything of
// test/conformance/cases.h with tensors of the device, over NCCL and through host memory; in the
// order of streams; and what the others hear when a rank dies.
//   gpu_engines <plug-in> [case]...
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/process/environment.h"
#include "runtime/job/job.h"
#include "test/conformance/engine_cases.h"
#include "test/gpu/ranks.h"
#include "test/support/device_vector.h"

namespace ronde::gpu_test {
namespace {

using device_test::Device;
using device_test::DeviceMemory;
using device_test::DeviceStream;
using runtime::Engine;

// One rank with an engine. Thread safety: one thread.
class EngineRank : public Findings {
 public:
  EngineRank(int rank, int size, Sharing sharing, const std::string& meet, Meeting& meeting)
      : Findings(rank, size),
        rank_(rank),
        size_(size),
        direct_(size == 1 || (sharing == Sharing::kNccl && Device::instance().is_real)),
        meeting_(meeting) {
    const auto open = [&](const base::Config& config, const base::Clock& clock) {
      return runtime::open_own_job({rank, size, nullptr, meet, ""}, config, clock);
    };
    auto environment = base::process_environment();
    std::erase_if(environment,
                  [](const std::string& one) { return one.starts_with("RONDE_DEVICE_"); });
    environment.push_back("RONDE_LOG_LEVEL=info");
    auto engine = Engine::open(open, environment, std::make_shared<base::SteadyClock>());
    if (expect(engine.status(), "open")) engine_ = *engine;
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  // Whether tensors must stay on the device, which the engine decides by itself.
  [[nodiscard]] bool direct() const { return direct_; }
  [[nodiscard]] bool is_open() const { return engine_ != nullptr; }
  [[nodiscard]] Engine& engine() const { return *engine_; }
  [[nodiscard]] Meeting& meeting() const { return meeting_; }

  using Findings::expect;
  bool expect(const base::Status& status, const std::string& what) {
    return expect(status.ok(), what + ", " + status.message());
  }
  // nullptr: it was refused.
  Engine::WorkPtr submit(runtime::Submission submission) {
    const std::string name = submission.name;
    auto work = engine_->submit(std::move(submission));
    return expect(work.status(), "submitting " + name) ? *work : nullptr;
  }
  void close() {
    if (engine_ != nullptr) expect(engine_->close(), "close");
  }

 private:
  const int rank_;
  const int size_;
  const bool direct_;
  Meeting& meeting_;
  std::shared_ptr<Engine> engine_;
};

runtime::Submission allreduce_of(const std::string& name, const DeviceMemory& memory,
                                 void* stream = nullptr, void* event = nullptr) {
  return testing::device_vector(name, runtime::Operation::kAllreduce,
                                static_cast<std::int64_t>(memory.bytes() / sizeof(float)), nullptr,
                                memory.get(), stream, event);
}

// What is submitted behind a slow stream, and what another stream does behind the work.
void check_streams(EngineRank& rank) {
  const ronde_device_kit& kit = *Device::instance().kit;
  const DeviceStream before;
  const DeviceStream after;
  const DeviceMemory source(device_test::contribution(rank.rank(), 500));
  for (const bool with_event : {false, true}) {
    const DeviceMemory tensor(std::vector<float>(500, -1000));
    const DeviceMemory seen(std::vector<float>(500));
    before.delay(200);
    before.copy(tensor, source);
    void* const event = with_event ? kit.make_event(before.get()) : nullptr;
    const auto work = rank.submit(allreduce_of("behind a stream", tensor, before.get(), event));
    // Both are the caller's again.
    before.delay(10);
    if (event != nullptr) {
      kit.record_event(event, before.get());
      kit.free_event(event);
    }
    if (work == nullptr) break;
    rank.expect(rank.engine().let_stream_wait(*work, after.get()), "a stream waits");
    // Through host memory it is the host that waits.
    rank.expect(work->completion.done() != rank.direct(),
                rank.direct() ? "the host does not wait" : "it goes through host memory");
    after.copy(seen, tensor);
    kit.synchronize(after.get());
    rank.expect(seen.values<float>() == device_test::summed(rank.size(), 500),
                "what the stream sees");
    rank.expect(rank.engine().wait(*work), "the host waits");
  }
}

void check_all(EngineRank& rank) {
  const std::string wrong =
      conformance::do_all_on_device(rank.engine(), rank.rank(), rank.size(), rank.direct());
  rank.expect(wrong.empty(), "\n" + wrong);
  check_streams(rank);
}

// Rank 0 is killed; in_flight: when its part has been submitted and its stream holds it back, so
// that the others are in the middle of it.
void check_death(EngineRank& rank, bool in_flight) {
  const DeviceMemory tensor(device_test::contribution(rank.rank(), 2'000'000));
  const auto first = rank.submit(allreduce_of("while all live", tensor));
  if (first != nullptr) rank.expect(rank.engine().wait(*first), "while all live");
  const DeviceStream stream;
  (void)rank.meeting().meet(rank.size());
  if (rank.rank() == 0) {
    if (in_flight) {
      stream.delay(3000);
      (void)rank.submit(allreduce_of("without rank 0", tensor, stream.get()));
      ::usleep(150'000);
    }
    ::_exit(kMeantToDie);
  }
  const auto begin = std::chrono::steady_clock::now();
  // Who has heard of it already refuses the tensor.
  const auto work = rank.engine().submit(allreduce_of("without rank 0", tensor, stream.get()));
  const base::Status status = work.ok() ? rank.engine().wait(**work) : work.status();
  rank.expect(!status.ok(), "a tensor without rank 0 fails");
  rank.expect(status.message().find("rank 0") != std::string::npos,
              "the error names rank 0: " + status.message());
  // Nobody is left in a kernel, and closing ends.
  Device::instance().kit->synchronize(stream.get());
  (void)rank.engine().close();
  rank.expect(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20), "in time");
}
void check_death_before(EngineRank& rank) { check_death(rank, false); }
void check_death_in_flight(EngineRank& rank) { check_death(rank, true); }

enum class End { kClosed, kDead };

using Check = void (*)(EngineRank&);

// A place to meet on this host that no other case has.
std::string place_to_meet() {
  static int next = 0;
  return "localhost:" + std::to_string((::getpid() * 37 + next++) % 65535 + 1);
}

Case make_case(const std::string& name, int ranks, Sharing sharing, Check check, End end) {
  return {name, ranks, sharing, [=, meet = place_to_meet()](int rank, int size, Meeting& meeting) {
            EngineRank me(rank, size, sharing, meet, meeting);
            if (!me.is_open()) return 1;
            check(me);
            if (end == End::kClosed) me.close();
            return me.wrong() == 0 ? 0 : 1;
          }};
}

bool has_device() {
  const ronde_device_kit& kit = *Device::instance().kit;
  void* const memory = kit.allocate(1);
  kit.free(memory);
  return memory != nullptr;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases{make_case("engine_1", 1, Sharing::kNccl, check_all, End::kClosed)};
  const auto add_all = [&](const std::string& path, Sharing sharing, int ranks) {
    const std::string of = path + "_" + std::to_string(ranks);
    cases.push_back(make_case("engine_" + of, ranks, sharing, check_all, End::kClosed));
    cases.push_back(
        make_case("engine_death_" + of, ranks, sharing, check_death_before, End::kDead));
    cases.push_back(make_case("engine_death_in_flight_" + of, ranks, sharing, check_death_in_flight,
                              End::kDead));
  };
  add_all("nccl", Sharing::kNccl, 2);
  add_all("nccl", Sharing::kNccl, 3);
  add_all("staged", Sharing::kStaged, 2);
  add_all("staged", Sharing::kStaged, 4);
  return cases;
}

}  // namespace
}  // namespace ronde::gpu_test

int main(int argc, char** argv) {
  using namespace ronde::gpu_test;
  return run_program({argv, static_cast<std::size_t>(argc)}, all_cases(), has_device);
}
