// SPDX-License-Identifier: Apache-2.0
// The launchers that set plain variables, and what is special about each.
#include "runtime/start/launchers.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/numbers.h"
#include "base/text.h"
#include "base/words/node_list.h"
#include "runtime/start/variables.h"

namespace ronde::runtime {

using base::narrow;
using base::Status;

namespace {

Status refused_launch(const std::string& text) {
  return Status::error(base::Code::kInvalidArgument, text);
}

// Rank and size; size may be unknown.
Status read_numbers(const Launcher& launcher, Environment environment, LaunchInfo& info) {
  const auto read = [&](std::string_view name, std::int64_t least, std::int32_t& number) -> Status {
    const auto text = name.empty() ? std::nullopt : variable(environment, name);
    if (!text) return {};
    const std::string known(name);
    RONDE_ASSIGN_OR_RETURN(const auto value, whole_number(known, *text, least, kMostRanks));
    number = narrow<std::int32_t>(value);
    info.variables.push_back(known);
    info.said += (info.said.empty() ? "" : " ") + known + "=" + *text;
    return {};
  };
  RONDE_RETURN_IF_ERROR(read(launcher.rank, 0, info.rank));
  RONDE_RETURN_IF_ERROR(read(launcher.size, 1, info.size));
  if (info.rank < 0) info.rank = 0;  // the only one
  if (info.size < 0 || info.rank < info.size) return {};
  return refused_launch(std::string(launcher.rank) + "=" + std::to_string(info.rank) +
                        " is no rank of a job of " + std::string(launcher.size) + "=" +
                        std::to_string(info.size) + ": ranks count from 0 to " +
                        std::to_string(info.size - 1));
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
base::Result<std::int64_t> port_of_slurm(Environment environment) {
  constexpr std::int64_t kFirstPort = 20000;
  constexpr std::int64_t kPorts = 10000;
  constexpr std::int64_t kMostJobs = std::int64_t{1} << 40U;
  if (const auto reserved = variable(environment, "SLURM_STEP_RESV_PORTS")) {
    const std::string first = reserved->substr(0, reserved->find_first_of("-,"));
    auto port = whole_number("SLURM_STEP_RESV_PORTS", first, 1, 65535);
    if (port.ok()) return port;
    return refused_launch("SLURM_STEP_RESV_PORTS=" + *reserved +
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

Status complete_by_hand(Environment environment, LaunchInfo& info) {
  if (variable(environment, "RONDE_MEET").value_or("").starts_with("unix:")) {
    info.launcher = "ronderun";
  }
  info.no_point =
      "RONDE_MEET is not set: expected the place where rank 0 listens, as in "
      "RONDE_MEET=localhost:29500 for ranks of one host";
  return {};
}

Status complete_torchrun(Environment environment, LaunchInfo& info) {
  if (const auto run = variable(environment, "TORCHELASTIC_RUN_ID")) info.job = "run " + *run;
  info.by_agent = !info.job.empty();
  const auto address = variable(environment, "MASTER_ADDR");
  const auto port = variable(environment, "MASTER_PORT");
  if (!address || !port) {
    info.no_point = std::string(address ? "MASTER_PORT" : "MASTER_ADDR") +
                    " is not set: expected the " + (address ? "port" : "name or address") +
                    " at which rank 0 is reached";
    return {};
  }
  RONDE_ASSIGN_OR_RETURN(const auto number, whole_number("MASTER_PORT", *port, 1, 65535));
  MeetingPoint point{*address, narrow<std::uint16_t>(port_of_torchrun(environment, number)), false};
  point.one_host = all_on_one_host(environment, "LOCAL_WORLD_SIZE", info.size);
  info.point = std::move(point);
  return {};
}

Status complete_horovod(Environment /*environment*/, LaunchInfo& info) {
  info.no_point =
      "Horovod's launcher names no place where they can meet: start them with ronderun, or set "
      "RONDE_MEET=host:port of rank 0";
  return {};
}

Status complete_slurm(Environment environment, LaunchInfo& info) {
  if (info.size == 1) return {};
  info.job = "step " + variable(environment, "SLURM_JOB_ID").value_or("") + "." +
             variable(environment, "SLURM_STEP_ID").value_or("0");
  const auto list = variable(environment, "SLURM_STEP_NODELIST");
  if (!list) {
    info.no_point = "SLURM_STEP_NODELIST is not set: expected the hosts of the step";
    return {};
  }
  const auto hosts = base::read_node_list(*list);
  if (!hosts) {
    return refused_launch("SLURM_STEP_NODELIST=" + *list +
                          " is not valid: expected a list of hosts, as in node[01-04]");
  }
  RONDE_ASSIGN_OR_RETURN(const auto port, port_of_slurm(environment));
  info.point = MeetingPoint{hosts->front(), narrow<std::uint16_t>(port),
                            all_on_one_host(environment, "SLURM_STEP_NUM_NODES", 1)};
  return {};
}

}  // namespace

std::span<const Launcher> launchers() {
  static const std::array<Launcher, 9> kLaunchers{{
      {.name = "you", .rank = "RONDE_RANK", .size = "RONDE_SIZE", .complete = complete_by_hand},
      {.name = "Open MPI's mpirun",
       .rank = "OMPI_COMM_WORLD_RANK",
       .size = "OMPI_COMM_WORLD_SIZE",
       .more = {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
                "OMPI_COMM_WORLD_NODE_RANK"},
       .by_mpi = true},
      {.name = "the mpirun of MVAPICH",
       .rank = "MV2_COMM_WORLD_RANK",
       .size = "MV2_COMM_WORLD_SIZE",
       .more = {"MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
       .by_mpi = true},
      {.name = "the mpirun of MPICH or Intel MPI",
       .rank = "PMI_RANK",
       .size = "PMI_SIZE",
       .more = {"PMI_FD", "PMI_PORT", "PMI_ID", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
       .by_mpi = true},
      {.name = "jsrun",
       .rank = "JSM_NAMESPACE_RANK",
       .size = "JSM_NAMESPACE_SIZE",
       .more = {"JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE"},
       .by_mpi = true},
      {.name = "a launcher with PMIx",
       .rank = "PMIX_RANK",
       .more = {"PMIX_NAMESPACE"},
       .by_mpi = true},
      {.name = "torchrun or one like it",
       .rank = "RANK",
       .size = "WORLD_SIZE",
       .more = {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK", "MASTER_ADDR",
                "MASTER_PORT", "TORCHELASTIC_RUN_ID"},
       .common_names = true,
       .complete = complete_torchrun},
      {.name = "horovodrun",
       .rank = "HOROVOD_RANK",
       .size = "HOROVOD_SIZE",
       .more = {"HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_GLOO_RENDEZVOUS_ADDR"},
       .complete = complete_horovod},
      // The shell of an allocation has SLURM_PROCID, too, and SLURM_NTASKS.
      {.name = "Slurm's srun",
       .rank = "SLURM_PROCID",
       .size = "SLURM_STEP_NUM_TASKS",
       .more = {"SLURM_STEP_NUM_TASKS"},
       .common_names = true,
       .has_later_ranks_alone = true,
       .complete = complete_slurm},
  }};
  return kLaunchers;
}

MaybeInfo info_of(const Launcher& launcher, Environment environment) {
  const bool ranked = variable(environment, launcher.rank).has_value();
  const auto size = launcher.size.empty() ? std::nullopt : variable(environment, launcher.size);
  const bool sized = launcher.size.empty() || size;
  if (!(ranked && sized) && size != "1") return std::optional<LaunchInfo>();
  LaunchInfo info;
  info.launcher = launcher.name;
  info.by_mpi = launcher.by_mpi;
  RONDE_RETURN_IF_ERROR(read_numbers(launcher, environment, info));
  if (launcher.complete != nullptr) {
    RONDE_RETURN_IF_ERROR(launcher.complete(environment, info));
  }
  return std::optional(std::move(info));
}

std::string half_set(const Launcher& launcher, Environment environment) {
  const auto there = [&](std::string_view name) {
    return !name.empty() && variable(environment, name).has_value();
  };
  const bool ranked = there(launcher.rank);
  const bool sized = there(launcher.size);
  const bool whole = ranked && (sized || launcher.size.empty());
  if (whole || variable(environment, launcher.size) == "1") return "";
  const auto first = std::ranges::find_if(launcher.more, there);
  const bool shown = first != launcher.more.end();
  const auto rank =
      base::parse_number<std::int64_t>(variable(environment, launcher.rank).value_or(""));
  const bool later = launcher.has_later_ranks_alone && rank.value_or(0) > 0;
  const bool began =
      later || (launcher.common_names ? shown && (ranked || sized) : shown || ranked || sized);
  if (!began) return "";
  std::string seen(shown ? *first : "");
  if (ranked || sized) seen = ranked ? launcher.rank : launcher.size;
  const std::string missing(ranked ? launcher.size : launcher.rank);
  return seen + " is set, but " + missing + " is not (" + std::string(launcher.name) +
         " sets both): set both, or neither; RONDE_ALONE=1 makes this process a job of one";
}

}  // namespace ronde::runtime
