// SPDX-License-Identifier: Apache-2.0
// One way of a message between two ranks of a host, half of there and back: out of plain memory and
// out of a ronde::Buffer, beside MPI_Send and MPI_Recv and one memcpy, in turns in one program.
//   mpirun -n 2 messages [--sizes 8,1048576] [--rounds 15]
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ronde/ronde.hpp>

#include "base/text.h"

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace {

using Clock = std::chrono::steady_clock;

struct Row {
  std::string name;
  std::function<void(std::size_t bytes)> there_and_back;
  std::vector<double> microseconds{};  // one way, by round
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

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

void measure(std::vector<Row>& rows, std::size_t bytes, int rounds, int rank) {
  const auto repeats = static_cast<int>(
      std::clamp<std::size_t>((std::size_t{16} << 20) / std::max<std::size_t>(bytes, 1), 2, 2000));
  for (Row& row : rows) row.microseconds.clear();
  for (int round = -1; round < rounds; ++round) {
    for (Row& row : rows) {
      MPI_Barrier(MPI_COMM_WORLD);
      const auto begin = Clock::now();
      for (int i = 0; i < repeats; ++i) row.there_and_back(bytes);
      const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
      if (round >= 0) row.microseconds.push_back(took.count() / repeats / 2);
    }
  }
  if (rank != 0) return;
  for (const Row& row : rows) {
    std::printf("bytes=%zu contender=%s one_way_us=%.3f best_us=%.3f\n", bytes, row.name.c_str(),
                median(row.microseconds), *std::min_element(row.microseconds.begin(),
                                                            row.microseconds.end()));
  }
  std::fflush(stdout);
}

int run(const std::vector<std::size_t>& sizes, int rounds) {
  ronde::Engine engine;
  ::setenv("RONDE_MESSAGES", "copy", 1);
  ronde::Engine by_kernel;
  const int rank = engine.rank();
  const std::size_t largest = *std::max_element(sizes.begin(), sizes.end());
  Memory memory(largest);
  ronde::Buffer<std::uint8_t> out(engine, largest);
  std::fill(out.begin(), out.end(), std::uint8_t{3});
  auto* const plain_out = reinterpret_cast<std::uint8_t*>(memory.out.data());
  auto* const in = reinterpret_cast<std::uint8_t*>(memory.in.data());
  std::vector<Row> rows{
      {"ronde",
       [&](std::size_t bytes) {
         exchange(engine, {plain_out, bytes}, {in, bytes});
       }},
      {"ronde-buffer",
       [&](std::size_t bytes) {
         exchange(engine, out.span().first(bytes), {in, bytes});
       }},
      {"ronde-kernel",
       [&](std::size_t bytes) {
         exchange(by_kernel, {plain_out, bytes}, {in, bytes});
       }},
      {"mpi", [&](std::size_t bytes) { exchange_with_mpi(rank, memory, bytes); }},
      {"memcpy", [&](std::size_t bytes) { copy(rank, memory, bytes); }}};
  for (const std::size_t bytes : sizes) measure(rows, bytes, rounds, rank);
  by_kernel.close();
  engine.close();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  std::vector<std::size_t> sizes{8, 4096, 8192, 16384, 65536, 1U << 20, 64U << 20};
  int rounds = 15;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--rounds") {
      rounds = ronde::base::parse_number<int>(argv[i + 1]).value_or(rounds);
    } else if (std::string(argv[i]) == "--sizes") {
      sizes.clear();
      for (const std::string& word : ronde::base::words_of(argv[i + 1], ",")) {
        sizes.push_back(ronde::base::parse_number<std::size_t>(word).value_or(8));
      }
    }
  }
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int code = 1;
  if (ranks != 2) {
    std::fprintf(stderr, "start it with mpirun -n 2\n");
  } else {
    code = run(sizes, rounds);
  }
  MPI_Finalize();
  return code;
}
// NOLINTEND(bugprone-casting-through-void)
