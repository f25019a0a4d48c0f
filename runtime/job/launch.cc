// SPDX-License-Identifier: Apache-2.0
// The variables of launchers, from the innermost to the outermost.
#include "runtime/job/launch.h"

#include <array>
#include <string_view>

#include "base/parse_number.h"

namespace ronde::runtime {

namespace {

struct Variable {
  std::string_view size;
  std::string_view rank;  // must be set too; empty: the size alone says it
  std::string_view launcher;
};

// SLURM_NTASKS is not here: a shell inside an allocation has it without any launcher.
constexpr std::array<Variable, 4> kVariables{{
    {"OMPI_COMM_WORLD_SIZE", "", "Open MPI's mpirun"},
    {"PMI_SIZE", "", "the mpirun of MPICH or Intel MPI"},
    {"SLURM_STEP_NUM_TASKS", "", "Slurm's srun"},
    {"WORLD_SIZE", "RANK", "torchrun or one like it"},
}};

std::optional<std::string> value_of(std::span<const std::string> environment,
                                    std::string_view name) {
  for (const std::string& line : environment) {
    if (line.size() > name.size() && line[name.size()] == '=' && line.starts_with(name)) {
      return line.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Launch> launch_of(std::span<const std::string> environment) {
  for (const Variable& variable : kVariables) {
    const auto value = value_of(environment, variable.size);
    if (!value || (!variable.rank.empty() && !value_of(environment, variable.rank))) continue;
    const auto ranks = base::parse_number<std::int64_t>(*value);
    if (!ranks || *ranks < 1) continue;  // no launcher writes this
    return Launch{std::string(variable.launcher), std::string(variable.size) + "=" + *value,
                  *ranks};
  }
  return std::nullopt;
}

base::Status check_launch(std::span<const std::string> environment, std::int64_t ranks,
                          const std::string& mpi) {
  const auto launch = launch_of(environment);
  if (ranks != 1 || !launch || launch->ranks == 1) return {};
  return base::Status::error(
      base::Code::kUnsupported,
      std::to_string(launch->ranks) + " processes were started by " + launch->launcher + " (" +
          launch->variable + "), but Ronde's MPI (" + mpi +
          ") knows of this one alone, so each would be a job of its own: start them with the "
          "mpirun of that MPI (srun: --mpi=pmix), or set RONDE_MPI=off if they are meant to be "
          "alone");
}

}  // namespace ronde::runtime
