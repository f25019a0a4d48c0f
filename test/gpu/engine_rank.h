// SPDX-License-Identifier: Apache-2.0
// One rank with an engine and a device, for programs that have no test framework: what is wrong is
// printed and counted.
#pragma once

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/process/environment.h"
#include "runtime/engine/engine.h"
#include "test/gpu/cases.h"
#include "test/gpu/engine_kit.h"
#include "test/gpu/process_job.h"
#include "test/support/device_vector.h"

namespace ronde::gpu_test {

using Floats = std::vector<float>;

// Memory of the device. Thread safety: one thread.
class Tensor {
 public:
  Tensor(const ronde_device_kit& kit, const Floats& values)
      : kit_(kit), elements_(values.size()), memory_(kit.allocate(values.size() * sizeof(float))) {
    if (elements_ != 0) kit_.write(memory_, values.data(), elements_ * sizeof(float), nullptr);
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() { kit_.free(memory_); }
  [[nodiscard]] std::byte* get() const { return static_cast<std::byte*>(memory_); }
  [[nodiscard]] std::int64_t elements() const { return static_cast<std::int64_t>(elements_); }
  [[nodiscard]] std::size_t bytes() const { return elements_ * sizeof(float); }
  [[nodiscard]] Floats values() const {
    Floats values(elements_);
    if (elements_ != 0) kit_.read(values.data(), memory_, bytes(), nullptr);
    return values;
  }

 private:
  const ronde_device_kit& kit_;
  const std::size_t elements_;
  void* const memory_;
};

// 1 to 4, by rank and place: sums are exact.
inline Floats contribution(int rank, std::size_t elements) {
  Floats values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    values[i] = static_cast<float>(1 + (i + static_cast<std::size_t>(rank)) % 4);
  }
  return values;
}
inline Floats summed(int ranks, std::size_t elements) {
  Floats sum(elements);
  for (int rank = 0; rank < ranks; ++rank) {
    const Floats one = contribution(rank, elements);
    for (std::size_t i = 0; i < elements; ++i) sum[i] += one[i];
  }
  return sum;
}

// One rank with an engine. Thread safety: one thread.
class EngineRank {
 public:
  EngineRank(const char* library, const SharedBoard& shared, int rank, int size, Sharing sharing,
             Meeting& meeting)
      : rank_(rank),
        size_(size),
        direct_(size == 1 || (sharing == Sharing::kNccl && has_network())),
        meeting_(meeting),
        kit_(open_kit(library)) {
    auto environment = base::process_environment();
    environment.push_back("RONDE_PLUGIN_PATH=" + std::string(library));
    environment.push_back("RONDE_LOG_LEVEL=info");
    const auto open = [&](const base::Config&, const base::Clock&) {
      return ForkedJob::join(shared, rank, size, meeting);
    };
    auto engine = runtime::Engine::open(open, environment, std::make_shared<base::SteadyClock>());
    if (expect(engine.status(), "open")) engine_ = *engine;
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  // Whether tensors must stay on the device, which the engine decides by itself.
  [[nodiscard]] bool direct() const { return direct_; }
  [[nodiscard]] int wrong() const { return wrong_; }
  [[nodiscard]] bool is_open() const { return engine_ != nullptr; }
  [[nodiscard]] runtime::Engine& engine() const { return *engine_; }
  [[nodiscard]] const ronde_device_kit& kit() const { return kit_; }
  [[nodiscard]] Meeting& meeting() const { return meeting_; }

  bool expect(bool right, const std::string& what) {
    if (right) return true;
    ++wrong_;
    std::printf("  rank %d of %d: %s: WRONG\n", rank_, size_, what.c_str());
    return false;
  }
  bool expect(const base::Status& status, const std::string& what) {
    return expect(status.ok(), what + ", " + status.message());
  }

  // nullptr: it was refused.
  runtime::Engine::WorkPtr submit(runtime::Submission submission) {
    const std::string name = submission.name;
    auto work = engine_->submit(std::move(submission));
    return expect(work.status(), "submitting " + name) ? *work : nullptr;
  }
  runtime::Engine::WorkPtr run(runtime::Submission submission) {
    const std::string name = submission.name;
    auto work = submit(std::move(submission));
    if (work != nullptr) expect(engine_->wait(*work), name);
    return work;
  }
  void close() {
    if (engine_ != nullptr) expect(engine_->close(), "close");
  }

 private:
  const int rank_;
  const int size_;
  const bool direct_;
  Meeting& meeting_;
  const ronde_device_kit& kit_;
  std::shared_ptr<runtime::Engine> engine_;
  int wrong_ = 0;
};

using testing::device_vector;

inline runtime::Submission allreduce_of(const std::string& name, const Tensor& tensor,
                                        void* stream = nullptr, void* event = nullptr) {
  return device_vector(name, runtime::Operation::kAllreduce, tensor.elements(), nullptr,
                       tensor.get(), stream, event);
}

inline Floats output_of(EngineRank& rank, const runtime::Work& work) {
  Floats values(work.output.size() / sizeof(float));
  if (!values.empty()) {
    rank.kit().read(values.data(), work.output.data(), work.output.size(), nullptr);
  }
  return values;
}

}  // namespace ronde::gpu_test
