// SPDX-License-Identifier: Apache-2.0
// The results as text: the table for people, JSON and CSV for programs. Pure.
#pragma once

#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "examples/perf/measure/statistics.h"
#include "examples/perf/options/options.h"

namespace ronde::perf {

struct Machine {
  std::string cpu;
  int cores = 0;  // the cores that a rank may use
  int ranks = 1;
  int hosts = 1;
  std::string ronde;
  std::string mpi;       // empty: this program does not use MPI
  std::string mpi_best;  // the algorithm that mpi-best runs; empty: not in use
  std::string algorithm;
  std::string device;  // empty: host memory
  std::string date;
};

// Describes the machine: "Intel Xeon, 2 cores, 2 ranks on 1 host, ..."
[[nodiscard]] std::string in_words(const Machine& machine);

void write_table_head(std::ostream& out, const Options& options, const Machine& machine);
// Writes the rows of one size, dtype and op: one for each contender, with both places side by side.
void write_table_rows(std::ostream& out, const Options& options,
                      std::span<const Summary> summaries);
void write_model(std::ostream& out, std::span<const Summary> summaries);
void write_table_foot(std::ostream& out, std::span<const Summary> summaries);

void write_json(std::ostream& out, const Options& options, const Machine& machine,
                std::span<const Sample> samples, std::span<const Summary> summaries);
void write_csv(std::ostream& out, std::span<const Summary> summaries);

// Returns text as JSON writes it, with its quotes.
[[nodiscard]] std::string quoted(const std::string& text);

}  // namespace ronde::perf
