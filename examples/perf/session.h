// SPDX-License-Identifier: Apache-2.0
// What one rank does between the start of its engine and the report: it measures case after case.
#pragma once

#include <cstddef>
#include <memory>
#include <ostream>
#include <ronde/ronde.hpp>
#include <set>
#include <string>
#include <vector>

#include "examples/perf/contenders/contender.h"
#include "examples/perf/contenders/device.h"
#include "examples/perf/contenders/mpi_peers.h"
#include "examples/perf/measure/measure.h"
#include "examples/perf/measure/statistics.h"
#include "examples/perf/options/options.h"
#include "examples/perf/report/report.h"

namespace ronde::perf {

struct Results {
  std::vector<Sample> samples;
  std::vector<Summary> summaries;
};

// Thread safety: belongs to one thread of each rank. run() is collective.
class Session {
 public:
  // `table` is null on every rank but the one that prints. `peers` may be null.
  Session(Engine& engine, const Options& options, Device& device, MpiPeers* peers,
          Watchdog& watchdog, std::ostream* table);

  [[nodiscard]] Results run();

 private:
  void run_sizes(const DType& dtype, const Op& op);
  void run_model(const DType& dtype, const Op& op);
  // Allocates the buffers. Collective; fails on every rank if it fails on one.
  [[nodiscard]] std::unique_ptr<Buffers> take_memory(std::size_t bytes);
  // Measures the contenders that can do this case.
  void run_case(const Case& shape, const Pattern& pattern, const Buffers& buffers);
  // Prints, once, which contenders of --against are not measured, and why.
  void note_absent(const Case& shape, const std::vector<Summary>& rows);
  [[nodiscard]] std::vector<Summary> measure(const Key& key, const std::vector<Entry>& entries);

  Engine& engine_;
  const Options& options_;
  Device& device_;
  Measurement measurement_;
  std::ostream* table_;
  std::vector<std::unique_ptr<Contender>> contenders_;  // Ronde first
  std::unique_ptr<Contender> one_by_one_;
  std::set<std::string> notes_;  // those that were printed
  Results results_;
};

}  // namespace ronde::perf
