// SPDX-License-Identifier: Apache-2.0
// Which strategy there is, which rank prints an error, and in which order the ranks end.
#include "bindings/trainer/fit/program/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <ronde/ronde.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/trainer/fit/strategy/strategies.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer {

namespace {

// Returns the rank that mpirun put into the environment, for use before an engine opens. Empty
// without mpirun.
std::string rank_of_environment() { return variable("OMPI_COMM_WORLD_RANK").value_or(""); }

// Writes the whole line at once, so that the lines of ranks do not mix.
void print_error(const std::string& program, const std::string& rank, const std::string& message) {
  std::fflush(stdout);
  const std::string where = rank.empty() ? ": " : ": rank " + rank + ": ";
  // A name or a path that a user gave may hold what a terminal obeys.
  std::fputs((program + where + ronde::detail::printable(message) + "\n").c_str(), stderr);
  std::fflush(stderr);
}

[[noreturn]] void exit_now(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

constexpr const char* kOnServers = "server";

struct StrategySettings {
  std::string name = "multiworker";
  std::size_t replicas = 1;
  int threads = 1;
  std::string cross_device = "NcclAllReduce";
};

void add_flags(FlagTable& flags, StrategySettings& settings, bool has_servers) {
  std::vector<std::string> names{"none", "onedevice", "mirrored", "multiworker", "central"};
  if (has_servers) names.emplace_back(kOnServers);
  flags.add(
      {{"strategy", one_of(settings.name, names),
        std::string("on which replicas it is trained: one (none, onedevice), --replicas of this "
                    "process (mirrored; central: they share the variables), or those of all "
                    "processes of the job") +
            (has_servers ? "; server: by tasks that pull variables from servers" : "")},
       {"replicas", whole(settings.replicas, 1, 64), "replicas of this process"},
       {"threads", whole(settings.threads, 1, 256), "threads of a replica's computing"},
       {"cross-device",
        one_of(settings.cross_device,
               {"NcclAllReduce", "HierarchicalCopyAllReduce", "ReductionToOneDevice"}),
        "mirrored: how the replicas sum gradients; on CPUs the first one is shared memory"}});
}

std::unique_ptr<Strategy> make_strategy(const StrategySettings& settings) {
  const std::string asked = "--strategy " + settings.name;
  if (settings.replicas != 1 && (settings.name == "none" || settings.name == "onedevice")) {
    throw UsageError("--replicas " + std::to_string(settings.replicas) + " is too many for " +
                     asked + ": use --strategy mirrored, or central");
  }
  if (settings.threads != 1 && settings.name == "none") {
    throw UsageError("--threads " + std::to_string(settings.threads) + " is too many for " + asked +
                     ": use --strategy onedevice");
  }
  if (settings.cross_device != StrategySettings().cross_device && settings.name != "mirrored") {
    throw UsageError("--cross-device " + settings.cross_device + " is not for " + asked +
                     ": use --strategy mirrored");
  }
  if (settings.name == "multiworker") {
    return std::make_unique<MultiWorkerMirrored>(
        MultiWorkerOptions{.replicas = settings.replicas,
                           .threads = settings.threads,
                           .say = [](const std::string& /*choice*/) {}});
  }
  if (settings.name == "central") {
    return std::make_unique<CentralStorage>(settings.replicas, settings.threads);
  }
  if (settings.name == "mirrored") {
    return std::make_unique<Mirrored>(settings.replicas, cross_device_ops(settings.cross_device),
                                      settings.threads);
  }
  if (settings.name == "onedevice") return std::make_unique<OneDevice>("cpu", settings.threads);
  return std::make_unique<Default>();
}

// Every process calls this with the same error. None leaves before all have printed: mpirun kills
// the rest of a job when the first rank fails.
[[noreturn]] void fail_together(const std::string& program, Strategy& strategy,
                                const AgreedError& error) {
  const int first = strategy.replica(0).rank();
  const bool ours = error.speaker() >= first &&
                    error.speaker() < first + static_cast<int>(strategy.local_replicas());
  if (ours || error.speaker() == AgreedError::kEveryRank) {
    print_error(program, strategy.is_served() ? "" : std::to_string(ours ? error.speaker() : first),
                error.what());
  }
  try {
    strategy.fail(error.what(), error.exit_code());
    strategy.run([](Replica& here) { here.engine().barrier_blocking("program/failed"); });
  } catch (const std::exception&) {
    exit_now(error.exit_code());  // the message is out, which is all that matters now
  }
  exit_now(error.exit_code());
}

// A task of a job with servers is no rank.
std::string name_of(Strategy& strategy) {
  return strategy.is_served() ? "" : std::to_string(strategy.replica(0).rank());
}

void tell_of_failure(Strategy& strategy, const std::exception& error) {
  try {
    strategy.fail(error.what(), exit_code_of(error));
  } catch (const std::exception&) {
    return;  // the others wait until their deadline
  }
}

int run_under(Strategy& strategy, const FlagTable& flags,
              const std::function<int(Strategy&)>& body) {
  try {
    const Scope scope(strategy);
    strategy.run([&](Replica& here) { require_same_flags(here, flags.values()); });
    const int exit_code = body(strategy);
    strategy.finish();
    strategy.run([](Replica& here) { here.engine().close(); });
    return exit_code;
  } catch (const AgreedError& error) {
    fail_together(flags.program(), strategy, error);
  } catch (const std::exception& error) {
    print_error(flags.program(), name_of(strategy), error.what());
    tell_of_failure(strategy, error);
    exit_now(exit_code_of(error));
  }
}

}  // namespace

// Before the ranks know each other they cannot agree on who prints. An error that all of them have
// is rank 0's to print, and mpirun ends the others while they wait here; an error that rank 0 does
// not have is still printed.
int report_errors(const std::string& program, const std::function<int()>& call) {
  try {
    return call();
  } catch (const std::exception& error) {
    const std::string rank = rank_of_environment();
    const bool others_first = !rank.empty() && rank != "0";
    if (others_first) std::this_thread::sleep_for(std::chrono::seconds(2));
    print_error(program, others_first ? rank : "", error.what());
    return exit_code_of(error);
  }
}

int run_program(int argc, char** argv, FlagTable& flags, const std::function<int(Strategy&)>& body,
                const ServedMaker& served) {
  StrategySettings settings;
  add_flags(flags, settings, served != nullptr);
  return report_errors(flags.program(), [&] {
    if (!flags.parse(argc, argv)) return 0;
    const auto strategy =
        settings.name == kOnServers ? served(settings.threads) : make_strategy(settings);
    return strategy == nullptr ? 0 : run_under(*strategy, flags, body);
  });
}

Metrics total(const PerReplica<Metrics>& parts) {
  std::vector<double> mine;
  for (const Metrics& one : parts.values()) {
    const std::vector<double> numbers = one.numbers();
    mine.insert(mine.end(), numbers.begin(), numbers.end());
  }
  const std::size_t each = mine.size() / parts.size();
  const auto all = current_strategy().over_processes("metrics", std::move(mine));
  Metrics sums;
  for (std::size_t i = 0; i < all.size(); i += each) {
    sums.add(parts[0].with(std::span(all).subspan(i, each)));
  }
  return sums;
}

bool stderr_is_terminal() {
  if (isatty(STDERR_FILENO) != 0) return true;
  if (rank_of_environment().empty()) return false;
  // The parent process is mpirun, which forwards to its own standard error.
  const std::string forwarded = "/proc/" + std::to_string(getppid()) + "/fd/2";
  const int descriptor = open(forwarded.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (descriptor < 0) return false;
  const bool terminal = isatty(descriptor) != 0;
  close(descriptor);
  return terminal;
}

}  // namespace ronde::trainer
