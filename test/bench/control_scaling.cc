// SPDX-License-Identifier: Apache-2.0
// How the control plane scales: what its nodes read and write in a step, and how long a step takes,
// for jobs from 8 ranks on, on a virtual clock. Ends with 1 if a bound is broken. The whole table:
//
//   control_scaling [most ranks]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "test/bench/scaling_job.h"

namespace ronde::bench {
namespace {

constexpr std::int64_t kMicrosecond = 1000;
// What a leader spends on a message that it reads or writes, rounded up from what this program
// takes for one itself.
constexpr std::int64_t kMessageNs = 200;

struct Row {
  ScalingSize size;
  std::int32_t hosts = 0;
  std::int32_t depth = 0;
  std::int32_t root_children = 0;
  ScalingStep first;
  ScalingStep steady;
  std::int64_t latency_at_50us = 0;
};

Row measure(const ScalingSize& size) {
  ScalingJob job(size);
  Row row{size, job.hosts(), job.depth(), job.root_children(), {}, {}, 0};
  row.first = job.first_step(10 * kMicrosecond);
  row.steady = job.steady_step(10 * kMicrosecond);
  row.latency_at_50us = job.steady_step(50 * kMicrosecond).latency_ns;
  return row;
}

double us(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1000.0; }

void print_node(const char* name, const testing::Traffic& traffic) {
  std::printf(" | %s %lld/%lld %.1f/%.1f", name, static_cast<long long>(traffic.messages_read),
              static_cast<long long>(traffic.messages_written),
              static_cast<double>(traffic.bytes_read) / 1e3,
              static_cast<double>(traffic.bytes_written) / 1e3);
}

void print(const Row& row) {
  std::printf("%6d ranks, %d a host, %5d hosts, depth %d\n", row.size.ranks,
              row.size.ranks_per_host, row.hosts, row.depth);
  for (const bool first : {true, false}) {
    const ScalingStep& step = first ? row.first : row.steady;
    std::printf("  %s", first ? "first " : "steady");
    print_node("root", step.root);
    print_node("inner", step.inner);
    print_node("leaf", step.leaf);
    std::printf(" | %.1f us", us(step.latency_ns));
    if (!first) std::printf(", links of 50 us: %.1f us", us(row.latency_at_50us));
    std::printf(" | %lld batches\n", static_cast<long long>(step.batches));
  }
  std::fflush(stdout);
}

// A node of a steady step reads a report of every tensor from each child and the batches, and
// writes as many.
bool is_within(const testing::Traffic& traffic, const ScalingSize& size, std::int64_t batches) {
  const std::int64_t read = std::int64_t{size.tensors} * size.fan_in + batches;
  const std::int64_t written = size.tensors + batches * size.fan_in;
  return traffic.messages_read <= read && traffic.messages_written <= written;
}

// The levels of a full tree of this fan-in that has room for the hosts, less one.
std::int32_t least_depth(std::int32_t hosts, std::int32_t fan_in) {
  std::int32_t depth = 0;
  std::int64_t level = 1;
  for (std::int64_t room = 1; room < hosts; room += level) {
    level *= fan_in;
    ++depth;
  }
  return depth;
}

bool holds(const Row& row) {
  const ScalingStep& steady = row.steady;
  const bool bounded = is_within(steady.root, row.size, steady.batches) &&
                       is_within(steady.inner, row.size, steady.batches) &&
                       is_within(steady.leaf, row.size, steady.batches) &&
                       row.root_children <= row.size.fan_in &&
                       row.depth == least_depth(row.hosts, row.size.fan_in);
  // Up and down, and at each node on the way the reports of the one that was missing, read and
  // written, and the batch for all children.
  const std::int64_t node = 2 * std::int64_t{row.size.tensors} + row.size.fan_in + 1;
  const auto most = [&](std::int64_t link) {
    return 2 * row.depth * link + (2 * row.depth + 1) * node * row.size.message_ns;
  };
  return bounded && steady.latency_ns <= most(10 * kMicrosecond) &&
         row.latency_at_50us <= most(50 * kMicrosecond);
}

int run(std::int32_t most_ranks) {
  std::printf("messages and kB, each read/written, of the busiest node of a kind\n");
  bool good = true;
  for (const std::int32_t ranks_per_host : {8, 1}) {
    for (const std::int32_t ranks : {8, 64, 512, 4096, 16384}) {
      if (ranks > most_ranks) continue;
      ScalingSize size;
      size.ranks = ranks;
      size.ranks_per_host = ranks_per_host;
      size.message_ns = kMessageNs;
      const Row row = measure(size);
      print(row);
      if (holds(row)) continue;
      std::printf("  a bound is broken\n");
      good = false;
    }
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace ronde::bench

int main(int argc, char** argv) {
  try {
    const int most_ranks = argc == 2 ? std::atoi(argv[1]) : 16384;
    if (argc > 2 || most_ranks < 8) {
      std::fputs("usage: control_scaling [most ranks, from 8 on]\n", stderr);
      return 2;
    }
    return ronde::bench::run(most_ranks);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "control_scaling: %s\n", error.what());
    return 1;
  }
}
