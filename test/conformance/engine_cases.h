// SPDX-License-Identifier: Apache-2.0
// How an engine does the operations of cases.h, with tensors in the memory of the host or of a
// device. The header needs no GoogleTest: programs for machines with a GPU do the list too.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine/engine.h"
#include "runtime/tensors/submission.h"
#include "test/conformance/cases.h"
#include "test/device/device.h"

namespace ronde::conformance {

// Where tensors lie. kManaged: in memory of the device that is submitted as the host's.
enum class Place : std::uint8_t { kHost, kDevice, kManaged };

// A case that an engine does, as often as it is told to. Thread safety: none.
class EngineCase {
 public:
  EngineCase(const Case& of, Precision precision) : running_(of, precision) {}

  [[nodiscard]] const Case& of() const { return running_.of(); }
  // Returns what is wrong; empty if nothing is.
  std::string start(runtime::Engine& engine, Place place) {
    place_ = place;
    inputs_.clear();
    outputs_.clear();
    running_.prepare();
    std::vector<runtime::Submission> tensors;
    for (std::size_t i = 0; i < of().tensors.size(); ++i) tensors.push_back(submission(i));
    boards_.clear();
    for (std::size_t i = 0; is_on_board() && i < tensors.size(); ++i) {
      const Bytes& input = of().tensors[i].input;
      boards_.push_back(engine.allocate(base::Bytes(std::ssize(input))).value());
      std::byte* const here = boards_.back()->bytes().data();
      std::copy(input.begin(), input.end(), here);
      tensors[i].views[0].input = here;
      if (of().makes_result()) continue;
      tensors[i].views[0].output = here + of().first * base::size_of(of().dtype());
    }
    auto whole = of().is_group() ? runtime::group_of(std::move(tensors))
                                 : base::Result<runtime::Submission>(std::move(tensors[0]));
    auto work = engine.submit(*std::move(whole));
    work_ = work.ok() ? *std::move(work) : nullptr;
    return work.ok() ? "" : work.status().message();
  }
  std::string finish(runtime::Engine& engine) {
    if (work_ == nullptr) return "";
    const base::Status done = engine.wait(*work_);
    if (!done.ok()) return done.message();
    for (std::size_t i = 0; i < boards_.size(); ++i) {
      std::copy_n(boards_[i]->bytes().data(), of().tensors[i].input.size(),
                  running_.output_block(i).begin());
    }
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      running_.output_block(i) = outputs_[i]->values<std::byte>();
      if (!inputs_.empty()) running_.input_block(i) = inputs_[i]->values<std::byte>();
    }
    if (of().makes_result() && !take_result()) return "the shape of the result";
    return running_.difference();
  }

 private:
  runtime::Submission submission(std::size_t tensor) {
    runtime::Submission submission;
    submission.name = of().is_group() ? of().name + ": " + std::to_string(tensor) : of().name;
    submission.place = "cases.h:1";
    submission.signature.operation = of().operation;
    submission.signature.dtype = of().dtype();
    submission.signature.op = of().what.op;
    submission.signature.shape = of().shape(tensor);
    submission.signature.root = of().root;
    submission.signature.prescale = of().what.prescale;
    submission.signature.postscale = of().what.postscale;
    submission.signature.compression = of().what.compression;
    submission.signature.weighted = of().weighted;
    submission.weights = {of().tensors[tensor].weight};
    submission.splits = of().splits;
    submission.views[0].input = running_.input(tensor);
    if (!of().makes_result()) submission.views[0].output = running_.output(tensor);
    if (place_ != Place::kHost) move_to_device(tensor, submission);
    return submission;
  }
  void move_to_device(std::size_t tensor, runtime::Submission& submission) {
    const bool managed = place_ == Place::kManaged || of().memory == Case::Memory::kOnBoard;
    const auto lent = [managed](const Bytes& block) {
      return std::make_unique<device_test::DeviceMemory>(block, managed);
    };
    outputs_.push_back(lent(running_.output_block(tensor)));
    auto* const output = static_cast<std::byte*>(outputs_.back()->get());
    if (!of().is_in_place()) inputs_.push_back(lent(running_.input_block(tensor)));
    submission.views[0].input =
        of().is_in_place() ? output : static_cast<std::byte*>(inputs_.back()->get());
    if (!of().makes_result()) {
      submission.views[0].output = output + of().first * base::size_of(of().dtype());
    }
    if (place_ != Place::kDevice) return;
    submission.signature.device = 0;
    submission.readiness = {{nullptr, nullptr}};
  }

  bool take_result() {
    const runtime::OutputBuffer& output = work_->output;
    running_.received = work_->received_splits;
    running_.result.resize(output.size());
    if (place_ != Place::kDevice) {
      std::copy_n(output.data(), output.size(), running_.result.begin());
    } else if (output.size() > 0) {
      device_test::Device::instance().kit->read(running_.result.data(), output.data(),
                                                output.size(), nullptr);
    }
    base::Shape shape = of().shape(0);
    shape[0] = std::ssize(of().tensors[0].expected) / base::size_of(of().dtype()) / of().width;
    return work_->output_shape == shape && work_->output_dtype == of().dtype();
  }
  [[nodiscard]] bool is_on_board() const {
    return of().memory == Case::Memory::kOnBoard && place_ == Place::kHost;
  }

  Running running_;
  Place place_ = Place::kHost;
  std::vector<std::unique_ptr<device_test::DeviceMemory>> inputs_;
  std::vector<std::unique_ptr<device_test::DeviceMemory>> outputs_;
  std::vector<std::unique_ptr<runtime::BoardBuffer>> boards_;
  runtime::Engine::WorkPtr work_;
};

// How the list is done.
struct Manner {
  Precision precision = Precision::kExact;
  // Where the tensors lie in each round, the cases in turns.
  std::vector<std::vector<Place>> rounds = {{Place::kHost}, {Place::kHost}};
  // What a GPU cannot do, and says so.
  bool (*is_refused)(const Case&) = [](const Case&) { return false; };
};

// All in flight together, by name and then by the plan, in an order that no two ranks and no two
// rounds share. Returns what is wrong, a line each.
inline std::string do_all(runtime::Engine& engine, std::int32_t rank,
                          const std::vector<Case>& cases, const Manner& manner) {
  std::vector<EngineCase> all;
  for (const Case& one : cases) all.emplace_back(one, manner.precision);
  std::string wrong;
  for (std::size_t round = 0; round < manner.rounds.size(); ++round) {
    std::vector<std::size_t> order(all.size());
    std::iota(order.begin(), order.end(), 0);
    std::mt19937_64 random(round * 100 + static_cast<std::uint64_t>(rank));
    std::shuffle(order.begin(), order.end(), random);
    const auto place_of = [&](std::size_t i) {
      return manner.rounds[round][i % manner.rounds[round].size()];
    };
    const auto note = [&](std::size_t i, const std::string& what) {
      const bool refused = place_of(i) == Place::kDevice && manner.is_refused(all[i].of());
      const bool right = refused ? what.find("on a GPU") != std::string::npos : what.empty();
      if (!right) wrong += all[i].of().name + ": " + (refused ? "not refused " : "") + what + "\n";
    };
    for (const std::size_t i : order) {
      const std::string what = all[i].start(engine, place_of(i));
      if (!what.empty()) note(i, what);
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t i : order) note(i, all[i].finish(engine));
  }
  if (engine.statistics().planned_requests == 0) wrong += "the plan was never used\n";
  return wrong;
}

// With tensors of the device, and then of all places in turns. direct: the device reduces them, and
// not the host. The toy keeps to the order rule then; NCCL, which every other device is taken for,
// to no order. once: of the ranks of this process, if there are others.
inline std::string do_all_on_device(runtime::Engine& engine, std::int32_t rank, std::int32_t ranks,
                                    bool direct, OnceForAll* once = nullptr) {
  const bool by_nccl = direct && std::string(device_test::Device::instance().plugin->name) != "toy";
  Manner manner;
  manner.rounds = {
      {Place::kDevice}, {Place::kDevice}, {Place::kHost, Place::kDevice, Place::kManaged}};
  if (by_nccl) {
    manner.precision = Precision::kRounded;
    manner.is_refused = [](const Case& one) {
      const DType dtype = one.dtype();
      return base::row(one.operation).reduces &&
             (base::is_bitwise(one.what.op) || dtype == DType::kU16 || dtype == DType::kI16 ||
              dtype == DType::kBool);
    };
  }
  Hosts host(1, std::vector<int>(static_cast<std::size_t>(ranks)));
  std::iota(host[0].begin(), host[0].end(), 0);
  // Above what is packed, and more chunks than the staging has lanes.
  const auto cases = Cases(host, rank, 1, by_nccl ? Numbers::kWhole : Numbers::kTelling, once)
                         .all(301, 4 << 20, /*weights=*/!direct);
  return do_all(engine, rank, cases, manner);
}

}  // namespace ronde::conformance
