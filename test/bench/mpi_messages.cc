// SPDX-License-Identifier: Apache-2.0
// One way of a message between two ranks of a host, half of there and back: out of plain memory,
// out of a ronde::Buffer, and prepared once by the two, beside MPI_Send and MPI_Recv and one
// memcpy, in turns in one program.
//   mpirun -n 2 messages [--sizes 8,1M] [--repetitions 15] [--json]
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ronde/ronde.hpp>

#include "test/bench/support/options.h"
#include "test/bench/support/report.h"
#include "test/bench/support/sampling.h"

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace {

using Clock = std::chrono::steady_clock;

struct Row {
  std::string name;
  std::function<void(std::size_t bytes)> there_and_back;
};

// What a rank sends and receives.
struct Memory {
  explicit Memory(std::size_t bytes) : out(bytes, std::byte{1}), in(bytes, std::byte{2}) {}
  std::vector<std::byte> out;
  std::vector<std::byte> in;
};

void exchange(ronde::Engine& engine, std::span<const std::uint8_t> out,
              std::span<std::uint8_t> in) {
  if (engine.rank() == 0) {
    engine.send_blocking(1, 0, out);
    engine.recv_blocking(1, 0, in);
  } else {
    engine.recv_blocking(0, 0, in);
    engine.send_blocking(0, 0, out);
  }
}

// A message that is prepared is a broadcast in the process set of its two ranks.
class PreparedPair {
 public:
  PreparedPair(ronde::Engine& set, std::size_t bytes)
      : rank_(set.rank()),
        sent_(bytes, static_cast<std::uint8_t>(rank_)),
        received_(bytes, 2),
        there_(set.prepare_broadcast("there " + std::to_string(bytes),
                                     rank_ == 0 ? sent_ : received_, 0)),
        back_(set.prepare_broadcast("back " + std::to_string(bytes), rank_ == 0 ? received_ : sent_,
                                    1)) {}
  void there_and_back() {
    there_.run();
    back_.run();
    if (received_.back() != 1 - rank_) throw std::runtime_error("a prepared message is wrong");
  }

 private:
  int rank_;
  std::vector<std::uint8_t> sent_;
  std::vector<std::uint8_t> received_;
  ronde::Prepared there_;
  ronde::Prepared back_;
};

void exchange_with_mpi(int rank, Memory& memory, std::size_t bytes) {
  const int count = static_cast<int>(bytes);
  const auto send = [&] {
    MPI_Send(memory.out.data(), count, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD);
  };
  if (rank == 0) send();
  MPI_Recv(memory.in.data(), count, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (rank == 1) send();
}

// A rank copies while the other one waits, as a message there and one back.
void copy(int rank, Memory& memory, std::size_t bytes) {
  for (int turn = 0; turn < 2; ++turn) {
    if (turn == rank) std::memcpy(memory.in.data(), memory.out.data(), bytes);
    if (bytes >= (std::size_t{1} << 20)) MPI_Barrier(MPI_COMM_WORLD);
  }
}

// In turns; microseconds are of one way.
void measure(const std::vector<Row>& rows, const ronde::bench::Options& options, std::int64_t size,
             std::vector<ronde::bench::Sample>& samples) {
  const auto bytes = static_cast<std::size_t>(size);
  const auto budget = std::size_t{options.quick ? 1U : 16U} << 20;
  const auto repeats = static_cast<int>(std::clamp<std::size_t>(budget / bytes, 2, 2000));
  for (int repetition = -1; repetition < options.repetitions; ++repetition) {
    for (const Row& row : rows) {
      MPI_Barrier(MPI_COMM_WORLD);
      const auto begin = Clock::now();
      for (int i = 0; i < repeats; ++i) row.there_and_back(bytes);
      const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
      if (repetition < 0) continue;
      ronde::bench::Sample sample;
      sample.contender = row.name;
      sample.bytes = size;
      sample.repetition = repetition;
      sample.median_us = took.count() / repeats / 2;
      samples.push_back(sample);
    }
  }
}

void run(const ronde::bench::Options& options) {
  ronde::Engine engine;
  ::setenv("RONDE_MESSAGES", "copy", 1);
  ronde::Engine by_kernel;
  ronde::Engine pair = engine.subset({0, 1}, "pair");
  std::map<std::size_t, PreparedPair> prepared;  // by size
  for (const std::int64_t size : options.sizes) {
    const auto bytes = static_cast<std::size_t>(size);
    prepared.try_emplace(bytes, pair, bytes);
  }
  const int rank = engine.rank();
  const auto largest =
      static_cast<std::size_t>(*std::max_element(options.sizes.begin(), options.sizes.end()));
  Memory memory(largest);
  ronde::Buffer<std::uint8_t> out(engine, largest);
  std::fill(out.begin(), out.end(), std::uint8_t{3});
  auto* const plain_out = reinterpret_cast<std::uint8_t*>(memory.out.data());
  auto* const in = reinterpret_cast<std::uint8_t*>(memory.in.data());
  std::vector<Row> rows{
      {"ronde", [&](std::size_t bytes) { exchange(engine, {plain_out, bytes}, {in, bytes}); }},
      {"ronde-buffer",
       [&](std::size_t bytes) { exchange(engine, out.span().first(bytes), {in, bytes}); }},
      {"ronde-kernel",
       [&](std::size_t bytes) { exchange(by_kernel, {plain_out, bytes}, {in, bytes}); }},
      {"ronde-prepared", [&](std::size_t bytes) { prepared.at(bytes).there_and_back(); }},
      {"mpi", [&](std::size_t bytes) { exchange_with_mpi(rank, memory, bytes); }},
      {"memcpy", [&](std::size_t bytes) { copy(rank, memory, bytes); }}};
  std::vector<ronde::bench::Sample> samples;
  for (const std::int64_t size : options.sizes) measure(rows, options, size, samples);
  by_kernel.close();
  pair.close();
  engine.close();
  if (rank != 0) return;
  if (options.json) return ronde::bench::print(samples, 2, true);
  for (const ronde::bench::Sample& sample : samples) {
    std::printf("bytes=%lld contender=%s repetition=%d one_way_us=%.3f\n",
                static_cast<long long>(sample.bytes), sample.contender.c_str(), sample.repetition,
                sample.median_us);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  int code = 1;
  try {
    const auto options = ronde::bench::read_options(
        argc, argv, "One way of a message between two ranks, beside MPI_Send and MPI_Recv.", false);
    int ranks = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) throw std::runtime_error("start it with mpirun -n 2");
    run(options);
    code = 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "messages: %s\n", error.what());
  }
  MPI_Finalize();
  return code;
}
// NOLINTEND(bugprone-casting-through-void)
