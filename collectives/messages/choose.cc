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
#include "collectives/messages/square.h"

namespace ronde::collectives {
namespace {

constexpr double kStepSeconds = 10e-6;
constexpr double kMessageSeconds = 12e-6;
constexpr double kByteSeconds = 8e-9;
constexpr double kIncast = 1.0625;  // on the bytes, where several send to one at a time

constexpr std::array<std::string_view, 5> kNames{"ring", "direct", "square", "short square",
                                                 "gather"};

// Measured on lines of 1 Gbit/s between network namespaces, in us, twice:
//
//   KiB               4         5         6         8         10        12        14
//   gather            104  99   125 126   150 150             249 249   298 298   347 347
//   short square      123 134   152 124   135 116   125 135   144 144   171 173   198 198
//   square            134 156   164 140   194 151   153 185   200 149   201 150   211 171
//   direct            175 176                       226 231
//
// Above, the line decides, and the square and the ring send the same: 288 287 and 288 290 us at 24
// KiB, 580 579 and 582 572 at 48.
AlgorithmLimits limits_of_four() {
  return {.gather = base::Bytes(5'000),
          .short_square = base::Bytes(11'000),
          .square = base::Bytes(48 << 10),
          .direct = {}};
}

// Of the ring and of direct.
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
  if (hosts == kSquareRanks) return limits_of_four();
  const double n = hosts;
  // What gather saves in steps and messages beside direct, and what it costs in bytes.
  const GatherShape shape = gather_shape(hosts);
  const double saved =
      (2 - shape.steps) * kStepSeconds + (2 * (n - 1) - shape.messages) * kMessageSeconds;
  const double more_in_gather = n - 1 - times_the_bytes(hosts) * incast(hosts);
  constexpr double kMost{kGatherWindowBytes};
  const double gather =
      more_in_gather > 0 ? std::clamp(saved / (kByteSeconds * more_in_gather), 0.0, kMost) : kMost;
  return {.gather = base::Bytes(std::llround(gather)),
          .short_square = {},
          .square = {},
          .direct = direct_limit(hosts)};
}

base::Bytes direct_scatter_limit(int hosts) { return direct_limit(hosts); }

Algorithm choose_scatter_algorithm(base::Bytes on_wire, int hosts) {
  return on_wire <= direct_scatter_limit(hosts) ? Algorithm::kDirect : Algorithm::kRing;
}

Algorithm choose_algorithm(base::Bytes on_wire, int hosts) {
  const AlgorithmLimits limits = limits_for(hosts);
  if (on_wire <= limits.gather) return Algorithm::kGather;
  if (on_wire <= limits.short_square) return Algorithm::kShortSquare;
  if (on_wire <= limits.square) return Algorithm::kSquare;
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
    case Algorithm::kSquare:
    case Algorithm::kShortSquare:
      return square_allreduce(
          transport, workspace, std::move(view), reduction, ranks, tag,
          algorithm == Algorithm::kSquare ? SquareKind::kFourSteps : SquareKind::kThreeSteps);
    case Algorithm::kGather:
      return gather_allreduce(transport, workspace, std::move(view), reduction, ranks, tag);
  }
  return ring_allreduce(transport, workspace, std::move(view), reduction, ranks, segment, tag);
}

}  // namespace ronde::collectives
