// SPDX-License-Identifier: Apache-2.0
// Which transport carries bytes between the ranks of a job, and why. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace ronde::runtime {

// Thread safety: a value.
struct TransportChoice {
  std::string name;    // of the plug-in: "mpi"
  std::string reason;  // "MPI started the job"
};

// `setting`: RONDE_TRANSPORT. `introduced_by`: the name of the plug-in whose meeting introduced the
// ranks; empty if none did.
[[nodiscard]] TransportChoice choose_transport(const std::string& setting,
                                               const std::string& introduced_by);

// What to tell a user whose Open MPI gives the core away whenever a thread looks for messages, from
// lines "NAME=value"; empty where it does not. `hosts`: of the job.
[[nodiscard]] std::string yielding_note(std::span<const std::string> environment,
                                        const std::string& transport, std::int32_t hosts);

}  // namespace ronde::runtime
