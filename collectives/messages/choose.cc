// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/choose.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "collectives/messages/direct.h"
#include "collectives/messages/gather.h"
#include "collectives/messages/ring.h"

namespace ronde::collectives {
namespace {

constexpr double kStepSeconds = 10e-6;
constexpr double kMessageSeconds = 12e-6;
constexpr double kByteSeconds = 8e-9;
constexpr double kIncast = 1.0625;  // factor on the bytes, where several send to one at a time

constexpr std::array<std::string_view, 3> kNames{"ring", "direct", "gather"};

// How many times the bytes of the vector a host sends in the ring or in direct.
double times_the_bytes(double hosts) { return 2 * (hosts - 1) / hosts; }

double incast(int hosts) { return hosts > 2 ? kIncast : 1; }

// Between two hosts the ring is the direct exchange. Beyond one message for each chunk, direct has
// more of them than the model counts.
base::Bytes direct_limit(int hosts) {
  if (hosts <= 2) return {};
  const double n = hosts;
  const double one_message = double{kMessageBytes} * n / (n - 1);
  const double more_in_direct = times_the_bytes(n) * (kIncast - 1);
  const double equal = 2 * (n - 2) * kStepSeconds / (kByteSeconds * more_in_direct);
  return base::Bytes(std::llround(std::min(one_message, equal)));
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  return kNames[static_cast<std::size_t>(algorithm)];
}

std::optional<Algorithm> algorithm_of(std::string_view name) {
  for (const Algorithm algorithm : {Algorithm::kRing, Algorithm::kDirect, Algorithm::kGather}) {
    if (name_of(algorithm) == name) return algorithm;
  }
  return std::nullopt;
}

AlgorithmLimits limits_for(int hosts) {
  base::check(hosts >= 1, "limits_for: at least one host");
  const double n = hosts;
  // What gather saves in steps and messages beside direct, and what it costs in bytes.
  const GatherShape shape = gather_shape(hosts);
  const double saved =
      (2 - shape.steps) * kStepSeconds + (2 * (n - 1) - shape.messages) * kMessageSeconds;
  const double more_in_gather = n - 1 - times_the_bytes(hosts) * incast(hosts);
  constexpr double kMost{kGatherWindowBytes};
  const double gather =
      more_in_gather > 0 ? std::clamp(saved / (kByteSeconds * more_in_gather), 0.0, kMost) : kMost;
  return {.gather = base::Bytes(std::llround(gather)), .direct = direct_limit(hosts)};
}

Algorithm choose_scatter_algorithm(base::Bytes on_wire, int hosts) {
  return on_wire <= limits_for(hosts).direct ? Algorithm::kDirect : Algorithm::kRing;
}

Algorithm choose_algorithm(base::Bytes on_wire, int hosts) {
  const AlgorithmLimits limits = limits_for(hosts);
  if (on_wire <= limits.gather) return Algorithm::kGather;
  if (on_wire <= limits.direct) return Algorithm::kDirect;
  return Algorithm::kRing;
}

std::unique_ptr<Collective> reduce_scatter_between(Algorithm algorithm, Transport& transport,
                                                   Workspace& workspace,
                                                   fusion::FusedView blocks_view,
                                                   const Reduction& reduction, int ranks,
                                                   base::Bytes segment, int tag) {
  const auto make = algorithm == Algorithm::kRing ? ring_reduce_scatter : direct_reduce_scatter;
  return make(transport, workspace, std::move(blocks_view), reduction, ranks, segment, tag);
}

std::unique_ptr<Collective> allreduce_between(Algorithm algorithm, Transport& transport,
                                              Workspace& workspace, fusion::FusedView view,
                                              const Reduction& reduction, int ranks,
                                              base::Bytes segment, int tag) {
  switch (algorithm) {
    case Algorithm::kRing:
      break;
    case Algorithm::kDirect:
      return direct_allreduce(transport, workspace, std::move(view), reduction, ranks, segment,
                              tag);
    case Algorithm::kGather:
      return gather_allreduce(transport, workspace, std::move(view), reduction, ranks, tag);
  }
  return ring_allreduce(transport, workspace, std::move(view), reduction, ranks, segment, tag);
}

}  // namespace ronde::collectives
