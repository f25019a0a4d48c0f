// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/choose.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
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

base::Bytes gather_limit(int hosts) {
  const double n = hosts;
  // What gather saves in steps and messages beside direct, and what it costs in bytes.
  const GatherShape shape = gather_shape(hosts);
  const double saved =
      (2 - shape.steps) * kStepSeconds + (2 * (n - 1) - shape.messages) * kMessageSeconds;
  const double more_in_gather = n - 1 - times_the_bytes(hosts) * incast(hosts);
  constexpr double kMost{kGatherWindowBytes};
  const double limit =
      more_in_gather > 0 ? std::clamp(saved / (kByteSeconds * more_in_gather), 0.0, kMost) : kMost;
  return base::Bytes(std::llround(limit));
}

base::Bytes never(int /*hosts*/) { return {}; }
base::Bytes always(int /*hosts*/) { return base::Bytes(std::numeric_limits<std::int64_t>::max()); }

// Gather's messages are as long as its windows, whatever a segment is.
std::unique_ptr<Collective> gather(Transport& transport, Workspace& workspace,
                                   fusion::FusedView view, const Reduction& reduction, int ranks,
                                   base::Bytes /*segment*/, int tag) {
  return gather_allreduce(transport, workspace, std::move(view), reduction, ranks, tag);
}

constexpr auto kAlgorithms = std::to_array<Algorithm>({
    {"gather", {gather_limit, gather}, {never, direct_reduce_scatter}},
    {"direct", {direct_limit, direct_allreduce}, {direct_limit, direct_reduce_scatter}},
    {"ring", {always, ring_allreduce}, {always, ring_reduce_scatter}},
});

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm* algorithm_of(std::string_view name) {
  const auto* const found = std::ranges::find(kAlgorithms, name, &Algorithm::name);
  return found == kAlgorithms.end() ? nullptr : found;
}

const Way& choose_way(const Algorithm* named, Way Algorithm::*operation, base::Bytes on_wire,
                      int hosts) {
  base::check(hosts >= 1, "choose_way: at least one host");
  if (named != nullptr) return named->*operation;
  const auto serves = [&](const Algorithm& row) { return on_wire <= (row.*operation).most(hosts); };
  return *std::ranges::find_if(kAlgorithms, serves).*operation;
}

std::string choice_text(const Algorithm* named, int hosts) {
  if (named != nullptr) {
    const std::string name(named->name);
    return "the " + name + ", as RONDE_ALGORITHM=" + name + " asks";
  }
  std::string text;
  base::Bytes below;
  for (const Algorithm& row : kAlgorithms) {
    const base::Bytes most = row.allreduce.most(hosts);
    if (most <= below || &row == &kAlgorithms.back()) continue;
    text += std::string(row.name) + " up to " + std::to_string(most.value()) +
            (below.value() == 0 ? " bytes, " : ", ");
    below = most;
  }
  return text + "the " + std::string(kAlgorithms.back().name) + " above";
}

}  // namespace ronde::collectives
