// SPDX-License-Identifier: Apache-2.0
// ronde-perf: measures the collectives of Ronde on this machine or cluster, beside others.
// Written on the facade and the C ABI alone, as an outsider would.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <ronde/ronde.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "examples/perf/contenders/agreement.h"
#include "examples/perf/contenders/device.h"
#include "examples/perf/contenders/mpi_peers.h"
#include "examples/perf/measure/watchdog.h"
#include "examples/perf/options/command_line.h"
#include "examples/perf/options/options.h"
#include "examples/perf/report/baseline.h"
#include "examples/perf/report/files.h"
#include "examples/perf/report/plot.h"
#include "examples/perf/report/report.h"
#include "examples/perf/session.h"

namespace {

using ronde::Engine;
using ronde::perf::EveryRanksError;
using ronde::perf::kUsage;
using ronde::perf::kWorse;
using ronde::perf::kWrong;
using ronde::perf::Machine;
using ronde::perf::on_rank_0;
using ronde::perf::Options;
using ronde::perf::Results;
using ronde::perf::UsageError;

// Returns the rank that mpirun put into the environment, for use before an engine opens.
std::string rank_of_environment() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr ? "" : rank;
}

// Writes the whole line at once, so that the lines of ranks do not mix.
void print_error(const std::string& rank, const std::string& message) {
  std::cout << std::flush;
  const std::string where = rank.empty() ? "ronde-perf: " : "ronde-perf: rank " + rank + ": ";
  std::fputs((where + message + "\n").c_str(), stderr);
  std::fflush(stderr);
}

// Ends the process without destructors, which could wait for a rank that is dead.
[[noreturn]] void exit_now(int code) {
  std::cout << std::flush;
  std::fflush(nullptr);
  std::_Exit(code);
}

// Rank 0 prints an error that all ranks have: mpirun ends the others while they wait here.
[[noreturn]] void refuse(const std::string& message) {
  const std::string rank = rank_of_environment();
  const bool others_first = !rank.empty() && rank != "0";
  if (others_first) std::this_thread::sleep_for(std::chrono::seconds(2));
  print_error(others_first ? rank : "", message);
  exit_now(kUsage);
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  std::array<char, 32> text{};
  if (gmtime_r(&now, &parts) == nullptr) return "";
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

// Describes the machine, with facts of all ranks. Collective.
Machine describe_machine(Engine& engine, const ronde::perf::Device& device,
                         const ronde::perf::MpiPeers* peers) {
  Machine machine;
  machine.device = device.name();
  machine.cpu = cpu_name();
  machine.cores = ronde::perf::usable_cores();
  machine.ranks = engine.size();
  std::int32_t hosts = engine.local_rank() == 0 ? 1 : 0;
  engine.allreduce_blocking("perf/hosts", std::span(&hosts, 1), ronde::sum);
  machine.hosts = hosts;
  machine.ronde = ronde_version();
  if (peers != nullptr) {
    machine.mpi = peers->version();
    machine.mpi_best = peers->best();
  }
  const char* const algorithm = std::getenv("RONDE_ALGORITHM");
  machine.algorithm = algorithm == nullptr || *algorithm == '\0' ? "auto" : algorithm;
  machine.date = date();
  return machine;
}

// Ranks that measure different things would wait for each other. Collective.
void require_same_command(Engine& engine, const Options& options) {
  std::string line;
  for (std::size_t i = 1; i < options.command.size(); ++i) line += options.command[i] + '\n';
  const std::vector<std::uint8_t> mine(line.begin(), line.end());
  const auto all = engine.allgather_blocking(
      "perf/command", std::span<const std::uint8_t>(mine.data(), mine.size()));
  const std::size_t ranks = static_cast<std::size_t>(engine.size());
  bool same = all.size() == ranks * mine.size();
  for (std::size_t i = 0; same && i < all.size(); ++i) same = all[i] == mine[i % mine.size()];
  std::int32_t agreed = same ? 1 : 0;
  engine.allreduce_blocking("perf/command-agreed", std::span(&agreed, 1), ronde::min);
  if (agreed == 0) {
    throw EveryRanksError(kUsage,
                          "the ranks were started with different flags: use one command for all");
  }
  if (options.root >= engine.size()) {
    throw EveryRanksError(kUsage, "--root " + std::to_string(options.root) +
                                      " is not valid: use a rank from 0 to " +
                                      std::to_string(engine.size() - 1));
  }
}

// The files that are written at the end.
struct Files {
  explicit Files(const Options& options) : json(options.json), csv(options.csv), svg(options.svg) {}
  ronde::perf::OutputFile json;
  ronde::perf::OutputFile csv;
  ronde::perf::OutputFile svg;
};

// Compares with --baseline; returns the exit code.
int compare_with_baseline(const std::vector<ronde::perf::Summary>& before, const Results& results,
                          const Options& options, std::ostream& out) {
  const ronde::perf::Comparison comparison =
      ronde::perf::compare(before, results.summaries, options.tolerance);
  if (comparison.compared == 0) {
    throw UsageError(options.baseline +
                     " holds no ratio that was measured now: use the same flags");
  }
  out << "# baseline " << options.baseline << ": " << comparison.compared << " ratios compared, "
      << comparison.worse.size() << " worse than the noise of both\n";
  for (const std::string& line : comparison.worse) out << "# worse: " << line << "\n";
  out << std::flush;
  return comparison.worse.empty() ? 0 : kWorse;
}

// Writes the report; returns the exit code for all ranks.
int report(const Results& results, const Options& options, const Machine& machine,
           const Files& files, const ronde::perf::Baseline& before, std::ostream& table) {
  files.json.write([&](std::ostream& out) {
    write_json(out, options, machine, results.samples, results.summaries);
  });
  files.csv.write([&](std::ostream& out) { write_csv(out, results.summaries); });
  files.svg.write([&](std::ostream& out) {
    const bool model = options.operation == ronde::perf::Operation::kModel;
    out << (model ? ronde::perf::bars(results.summaries, in_words(machine))
                  : ronde::perf::plot(results.summaries, in_words(machine)));
  });
  int code = 0;
  if (!options.baseline.empty()) {
    code = compare_with_baseline(before.summaries, results, options, table);
  }
  for (const ronde::perf::Summary& each : results.summaries) {
    if (each.wrong != 0) throw std::runtime_error("there are wrong results: see the column #wrong");
  }
  ronde::perf::require_standard_output();
  return code;
}

// Throws EveryRanksError for an exit code that is not 0.
void measure(Engine& engine, const Options& options, ronde::perf::Device& device,
             ronde::perf::MpiPeers* peers) {
  require_same_command(engine, options);
  const Machine machine = describe_machine(engine, device, peers);
  std::unique_ptr<Files> files;
  ronde::perf::Baseline before;
  on_rank_0(engine, [&] {
    if (!options.baseline.empty()) {
      before = ronde::perf::read_baseline(options.baseline);
      require_alike(before, ronde::perf::conditions_of(options, machine), options.baseline);
    }
    files = std::make_unique<Files>(options);
    return 0;
  });
  const bool table_moves = options.json == "-" || options.csv == "-";
  std::ostream& table = table_moves ? std::cerr : std::cout;
  const bool speaks = engine.rank() == 0;
  if (speaks) write_table_head(table, options, machine);

  ronde::perf::Watchdog watchdog(std::chrono::duration<double>(options.timeout_seconds),
                                 [rank = engine.rank()](const std::string& what) {
                                   print_error(std::to_string(rank),
                                               "no end within --timeout: " + what);
                                   exit_now(kWrong);
                                 });
  ronde::perf::Session session(engine, options, device, peers, watchdog, speaks ? &table : nullptr);
  const Results results = session.run();
  on_rank_0(engine, [&] { return report(results, options, machine, *files, before, table); });
}

int run(const Options& options) {
  std::vector<std::string> mpi;
  for (const std::string& name : options.against) {
    if (name == "mpi" || name == "mpi-best") mpi.push_back(name);
  }
  // Both come before the engine, which then takes the same device, and shares this program's MPI.
  const std::unique_ptr<ronde::perf::Device> device =
      options.device == "cuda" ? ronde::perf::open_cuda_device()
                               : ronde::perf::make_host_device(options.on_board);
  std::unique_ptr<ronde::perf::MpiPeers> peers;
  if (!mpi.empty()) peers = ronde::perf::start_mpi_peers(mpi);
  Engine engine;
  const std::string rank = std::to_string(engine.rank());
  int code = 0;
  try {
    try {
      measure(engine, options, *device, peers.get());
    } catch (const EveryRanksError& error) {
      code = error.code();
      if (engine.rank() == 0 && *error.what() != '\0') print_error("", error.what());
    }
    engine.close();
    if (peers != nullptr) peers->close();
  } catch (const std::exception& error) {
    print_error(rank, error.what());
    exit_now(kWrong);
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = ronde::perf::parse_options(argc, argv);
    if (options.help || options.version) {
      const std::string rank = rank_of_environment();
      const std::string text = options.help ? ronde::perf::help_text()
                                            : std::string("ronde-perf ") + ronde_version() + "\n";
      if (rank.empty() || rank == "0") std::cout << text;
      ronde::perf::require_standard_output();
      return 0;
    }
    return run(options);
  } catch (const UsageError& error) {
    refuse(error.what());
  } catch (const ronde::Error& error) {
    // The engine did not open: settings are wrong on all ranks, or all ranks know that they differ.
    if (error.status() == RONDE_INVALID_ARGUMENT || error.status() == RONDE_MISMATCH) {
      refuse(error.what());
    }
    print_error(rank_of_environment(), error.what());
    exit_now(kWrong);
  } catch (const std::exception& error) {
    print_error(rank_of_environment(), error.what());
    exit_now(kWrong);
  }
}
