// SPDX-License-Identifier: Apache-2.0
// The rule behind RONDE_TRANSPORT=auto, and the variables by which Open MPI is told to yield.
#include "runtime/job/transport_choice.h"

#include <string_view>

namespace ronde::runtime {

namespace {

constexpr std::string_view kMpiPlugin = "mpi";

std::string_view value_of(std::span<const std::string> environment, std::string_view name) {
  for (const std::string& line : environment) {
    if (line.size() > name.size() && line[name.size()] == '=' && line.starts_with(name)) {
      return std::string_view(line).substr(name.size() + 1);
    }
  }
  return {};
}

}  // namespace

TransportChoice choose_transport(const std::string& setting, const std::string& introduced_by) {
  if (setting != "auto") return {setting, "RONDE_TRANSPORT=" + setting};
  if (introduced_by == kMpiPlugin) return {std::string(kMpiPlugin), "MPI started the job"};
  return {"ucx", "MPI did not start the job"};
}

std::string yielding_note(std::span<const std::string> environment, const std::string& transport,
                          std::int32_t hosts) {
  if (transport != kMpiPlugin || hosts < 2) return "";
  // Unless it is told, Open MPI yields where mpirun has more ranks than cores on a host.
  const std::string_view told = value_of(environment, "OMPI_MCA_mpi_yield_when_idle");
  const bool crowded = value_of(environment, "OMPI_MCA_mpi_oversubscribe") == "1";
  const bool yields = told.empty() ? crowded : told != "0" && told != "false";
  if (!yields) return "";
  return "Open MPI gives the core away whenever a thread looks for messages (" +
         std::string(told.empty() ? "more ranks than cores" : "mpi_yield_when_idle") +
         "), so tensors do not move while a rank computes on all cores; RONDE_TRANSPORT=ucx, where "
         "libronde_ucx.so is installed, loses nothing: its threads sleep until something arrives";
}

}  // namespace ronde::runtime
