// SPDX-License-Identifier: Apache-2.0
// An operation that is agreed once and run as often as wanted. On one host a small one meets in
// lines on the board, beside the coordinator: a call has no name, no lock and no allocation. Any
// other one is the ordinary operation, of the same name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/in_host/lines.h"
#include "collectives/kernels/reduce.h"
#include "runtime/lines/line_words.h"
#include "runtime/tensors/local_tensor.h"
#include "runtime/tensors/work.h"

namespace ronde::runtime {

class Engine;

// The calls of one operation by lines.
//
// Thread safety: one thread at a time.
class LineCalls {
 public:
  // tensor: as checked on this rank. bytes_of_rank: of an allgather, what each rank gives.
  LineCalls(LineHost host, const collectives::Lines& lines, const AgreedTensor& agreed,
            const LocalTensor& tensor, std::vector<std::size_t> bytes_of_rank);
  ~LineCalls();
  LineCalls(const LineCalls&) = delete;
  LineCalls& operator=(const LineCalls&) = delete;

  // The most that a rank gives in a call; bytes_of_rank is of an allgather alone.
  static std::size_t most_bytes(const LocalTensor& tensor,
                                const std::vector<std::size_t>& bytes_of_rank);

  base::Status start();
  // With a deadline of its own a call that is late ends the operation on all ranks, with the text
  // on each, and the job lives.
  base::Status wait();
  [[nodiscard]] const std::vector<std::byte>& gathered() const { return gathered_; }

 private:
  void plan_reduction(const AgreedTensor& agreed);
  void read(int line);

  LineWords words_;
  const base::Operation operation_;
  const std::int32_t root_;
  const base::Nanoseconds deadline_;  // of each call; 0: the engine's
  const std::span<const std::byte> input_;
  std::byte* const output_;
  collectives::Lines::Sequence call_ = 0;
  // A reduction has these: what this rank takes of it, and where that lies in both lines, by rank.
  const collectives::ReduceKernels* kernels_ = nullptr;
  collectives::Scaling scaling_;
  std::int64_t elements_ = 0;
  std::vector<const std::byte*> sources_[2];
  const std::vector<std::size_t> bytes_of_rank_;
  std::vector<std::byte> gathered_;
};

// Keeps the engine. The memory of the tensor is the caller's: with lines it is touched inside the
// calls alone, otherwise from start() to the end of wait().
//
// Thread safety: one thread at a time.
class Prepared {
 public:
  // Ends a call that is under way, as a Work that is let go does. In a forked child it does
  // nothing.
  ~Prepared();
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;
  // Collective, as the first call of an ordinary operation: agrees on everything but the memory.
  static base::Result<std::unique_ptr<Prepared>> make(std::shared_ptr<Engine> engine,
                                                      Submission submission);

  // Begins a call, for which it reads the input, and ends it, for which it writes the output. The
  // root of a broadcast may wait in start() until all ranks have read the call before the last.
  base::Status start();
  base::Status wait();
  base::Status run();

  // The result of an allgather, after wait() and until the next start().
  struct Gathered {
    const std::byte* data = nullptr;
    base::Shape shape;
    base::DType dtype = base::DType::kF32;
  };
  [[nodiscard]] base::Result<Gathered> gathered() const;
  [[nodiscard]] bool has_lines() const { return lines_ != nullptr; }

 private:
  Prepared(std::shared_ptr<Engine> engine, Submission submission, AgreedTensor agreed)
      : engine_(std::move(engine)),
        submission_(std::move(submission)),
        agreed_(std::move(agreed)) {}
  base::Status make_lines(const LocalTensor& tensor);
  [[nodiscard]] base::Status wrong(const char* what) const;

  const std::shared_ptr<Engine> engine_;
  const Submission submission_;
  const AgreedTensor agreed_;
  std::unique_ptr<LineCalls> lines_;
  std::shared_ptr<Work> work_;  // of a call without lines
  bool started_ = false;
};

}  // namespace ronde::runtime
