// SPDX-License-Identifier: Apache-2.0
// The words of launchers that speak in plain variables: by hand, MPI, torchrun and Slurm.
#include "runtime/meet/words.h"

#include <array>
#include <string_view>

#include "base/numbers.h"
#include "base/text.h"
#include "runtime/meet/variables.h"

namespace ronde::runtime {

using base::Code;
using base::narrow;
using base::Result;
using base::Status;

namespace {

using Environment = std::span<const std::string>;

Status refused_words(const std::string& text) {
  return Status::error(Code::kInvalidArgument, text);
}

// A variable that another one makes necessary.
Result<std::int64_t> number_beside(Environment environment, const std::string& name,
                                   const std::string& other, std::int64_t least) {
  const auto text = variable(environment, name);
  if (!text) {
    return refused_words(other + " is set, but " + name + " is not: set both, or neither");
  }
  return whole_number(name, *text, least, kMostRanks);
}

// Rank and size of a launcher that gives both.
Status read_numbers(Environment environment, const std::string& rank_name,
                    const std::string& size_name, Word& word) {
  RONDE_ASSIGN_OR_RETURN(const auto rank, number_beside(environment, rank_name, size_name, 0));
  RONDE_ASSIGN_OR_RETURN(const auto size, number_beside(environment, size_name, rank_name, 1));
  RONDE_RETURN_IF_ERROR(check_rank(rank_name, rank, size_name, size));
  word.rank = narrow<std::int32_t>(rank);
  word.size = narrow<std::int32_t>(size);
  word.said = rank_name + "=" + std::to_string(rank) + " " + size_name + "=" + std::to_string(size);
  return {};
}

bool all_on_one_host(Environment environment, std::string_view here, std::int32_t all) {
  const auto text = variable(environment, here);
  return text && base::parse_number<std::int64_t>(*text) == all;
}

// torchrun's agent keeps MASTER_PORT for its own store, so the port after that one is taken; other
// launchers that set these variables (Kubeflow's PyTorchJob) leave MASTER_PORT to the program, and
// open no other port.
std::int64_t port_of_torchrun(Environment environment, std::int64_t master_port) {
  constexpr std::int64_t kLastPort = 65535;
  if (variable(environment, "TORCHELASTIC_USE_AGENT_STORE").value_or("") != "True") {
    return master_port;
  }
  return master_port == kLastPort ? master_port - 1 : master_port + 1;
}

// Ranges of ports that no system gives out by itself begin below 32768. The port depends on the
// step, so that the steps of one allocation can run side by side. SLURM_SRUN_COMM_PORT would not
// do: srun itself listens there, and may run on the same host.
Result<std::int64_t> port_of_slurm(Environment environment) {
  constexpr std::int64_t kFirstPort = 20000;
  constexpr std::int64_t kPorts = 10000;
  constexpr std::int64_t kMostJobs = std::int64_t{1} << 40U;
  if (const auto reserved = variable(environment, "SLURM_STEP_RESV_PORTS")) {
    const std::string first = reserved->substr(0, reserved->find_first_of("-,"));
    auto port = whole_number("SLURM_STEP_RESV_PORTS", first, 1, 65535);
    if (port.ok()) return port;
    return refused_words("SLURM_STEP_RESV_PORTS=" + *reserved +
                         " is no list of ports (12000-12003)");
  }
  RONDE_ASSIGN_OR_RETURN(
      const auto job,
      whole_number("SLURM_JOB_ID", variable(environment, "SLURM_JOB_ID").value_or(""), 0,
                   kMostJobs));
  RONDE_ASSIGN_OR_RETURN(
      const auto step,
      whole_number("SLURM_STEP_ID", variable(environment, "SLURM_STEP_ID").value_or("0"), 0,
                   kMostJobs));
  return kFirstPort + (job * 31 + step) % kPorts;
}

}  // namespace

Status check_rank(const std::string& rank_name, std::int64_t rank, const std::string& size_name,
                  std::int64_t size) {
  if (rank < size) return {};
  return refused_words(rank_name + "=" + std::to_string(rank) + " is no rank of a job of " +
                       size_name + "=" + std::to_string(size) + ": ranks count from 0 to " +
                       std::to_string(size - 1));
}

MaybeWord word_of_hand(Environment environment) {
  if (!variable(environment, "RONDE_RANK") && !variable(environment, "RONDE_SIZE")) {
    return std::optional<Word>();
  }
  Word word;
  word.launcher = "you";
  RONDE_RETURN_IF_ERROR(read_numbers(environment, "RONDE_RANK", "RONDE_SIZE", word));
  word.no_point =
      "RONDE_MEET is not set: expected the place where rank 0 listens, as in "
      "RONDE_MEET=localhost:29500 for ranks of one host";
  return std::optional(std::move(word));
}

MaybeWord word_of_mpi(Environment environment) {
  struct Variables {
    std::string_view size;
    std::string_view rank;
    std::string_view launcher;
  };
  // From the innermost to the outermost: a launcher inside another one's job leaves the outer one's
  // variables in place.
  constexpr std::array<Variables, 3> kLaunchers{{
      {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun"},
      {"PMI_SIZE", "PMI_RANK", "the mpirun of MPICH or Intel MPI"},
      {"", "PMIX_RANK", "a launcher with PMIx"},
  }};
  for (const Variables& one : kLaunchers) {
    Word word;
    word.launcher = one.launcher;
    // MPI itself judges its variables, so what is no number here just says nothing.
    const auto read = [&](std::string_view name, std::int64_t least) -> std::int32_t {
      const auto text = name.empty() ? std::nullopt : variable(environment, name);
      const auto number = base::parse_number<std::int32_t>(text.value_or(""));
      if (!number || *number < least) return -1;
      word.said += (word.said.empty() ? "" : " ") + std::string(name) + "=" + *text;
      return *number;
    };
    word.size = read(one.size, 1);
    word.rank = read(one.rank, 0);
    if (word.size >= 1 || (one.rank.starts_with("PMI") && word.rank >= 0)) {
      return std::optional(std::move(word));
    }
  }
  return std::optional<Word>();
}

MaybeWord word_of_torchrun(Environment environment) {
  // Anybody may use one of these names for something else.
  if (!variable(environment, "RANK") || !variable(environment, "WORLD_SIZE")) {
    return std::optional<Word>();
  }
  Word word;
  word.launcher = "torchrun or one like it";
  word.by_agent = variable(environment, "TORCHELASTIC_RUN_ID").has_value();
  RONDE_RETURN_IF_ERROR(read_numbers(environment, "RANK", "WORLD_SIZE", word));
  const auto address = variable(environment, "MASTER_ADDR");
  const auto port = variable(environment, "MASTER_PORT");
  if (!address || !port) {
    word.no_point = std::string(address ? "MASTER_PORT" : "MASTER_ADDR") +
                    " is not set: expected the " + (address ? "port" : "name or address") +
                    " at which rank 0 is reached";
    return std::optional(std::move(word));
  }
  RONDE_ASSIGN_OR_RETURN(const auto number, whole_number("MASTER_PORT", *port, 1, 65535));
  MeetingPoint point{*address, narrow<std::uint16_t>(port_of_torchrun(environment, number)), false};
  point.one_host = all_on_one_host(environment, "LOCAL_WORLD_SIZE", word.size);
  word.point = std::move(point);
  return std::optional(std::move(word));
}

std::optional<std::string> first_host(const std::string& list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ',';) {
    if (list[at] != '[') {
      host += list[at++];
      continue;
    }
    // "[07-09,12]": the first number, with its zeros.
    const std::size_t end = list.find(']', at);
    const std::size_t stop = list.find_first_of("-,]", at);
    if (end == std::string::npos || stop == at + 1) return std::nullopt;
    const std::string digits = list.substr(at + 1, stop - at - 1);
    if (digits.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
    host += digits;
    at = end + 1;
  }
  if (host.empty() || host.find_first_of("[] \t") != std::string::npos) return std::nullopt;
  return host;
}

// SLURM_NTASKS does not count: the shell of an allocation has it too, and SLURM_PROCID with it.
MaybeWord word_of_slurm(Environment environment) {
  const std::string size_name = "SLURM_STEP_NUM_TASKS";
  if (!variable(environment, size_name)) return std::optional<Word>();
  Word word;
  word.launcher = "Slurm's srun";
  RONDE_RETURN_IF_ERROR(read_numbers(environment, "SLURM_PROCID", size_name, word));
  if (word.size == 1) return std::optional(std::move(word));
  const auto list = variable(environment, "SLURM_STEP_NODELIST");
  if (!list) {
    word.no_point = "SLURM_STEP_NODELIST is not set: expected the hosts of the step";
    return std::optional(std::move(word));
  }
  const auto host = first_host(*list);
  if (!host) {
    return refused_words("SLURM_STEP_NODELIST=" + *list +
                         " is not valid: expected a list of hosts, as in node[01-04]");
  }
  RONDE_ASSIGN_OR_RETURN(const auto port, port_of_slurm(environment));
  word.point = MeetingPoint{*host, narrow<std::uint16_t>(port),
                            all_on_one_host(environment, "SLURM_STEP_NUM_NODES", 1)};
  return std::optional(std::move(word));
}

}  // namespace ronde::runtime
