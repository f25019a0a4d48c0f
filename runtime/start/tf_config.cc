// SPDX-License-Identifier: Apache-2.0
// What TF_CONFIG tells: its chief is rank 0, and its workers follow.
#include "base/words/tf_config.h"

#include <variant>
#include <vector>

#include "base/numbers.h"
#include "base/process/secrets.h"
#include "base/text.h"
#include "base/wire/sha256.h"
#include "runtime/start/launchers.h"
#include "runtime/start/variables.h"

namespace ronde::runtime {

using base::narrow;

namespace {

base::Result<MeetingPoint> point_of(const std::vector<std::string>& all) {
  MeetingPoint first;
  bool one_host = true;
  for (std::size_t i = 0; i < all.size(); ++i) {
    RONDE_ASSIGN_OR_RETURN(auto point,
                           parse_meeting_point("TF_CONFIG is not valid: the address", all[i]));
    if (i == 0) first = point;
    one_host = one_host && point.host == first.host;
  }
  first.one_host = first.one_host || one_host;
  return first;
}

// "the cluster of 3 at a:1, 5f3c...".
std::string job_of(const std::vector<std::string>& all) {
  const std::string text = base::joined(all);
  const base::Digest digest = base::sha256(std::as_bytes(std::span(text)));
  return "the cluster of " + std::to_string(all.size()) +
         (all.empty() ? "" : " at " + all.front().substr(0, 100)) + ", " +
         base::hex_of(std::span(digest).first(8));
}

}  // namespace

MaybeInfo info_of_tf_config(std::span<const std::string> environment) {
  const auto text = variable(environment, "TF_CONFIG");
  if (!text) return std::optional<LaunchInfo>();
  const auto read = base::read_tf_config(*text);
  if (const auto* const wrong = std::get_if<std::string>(&read)) {
    return base::Status::error(base::Code::kInvalidArgument, *wrong);
  }
  const auto& config = std::get<base::TfConfig>(read);
  if (config.cluster.empty()) return std::optional<LaunchInfo>();  // as TensorFlow does

  std::vector<std::string> all = config.addresses("chief");
  const auto chiefs = std::ssize(all);
  const auto& workers = config.addresses("worker");
  all.insert(all.end(), workers.begin(), workers.end());
  LaunchInfo info;
  info.launcher = "whatever set TF_CONFIG";
  info.variables = {"TF_CONFIG"};
  info.said = "TF_CONFIG: " + config.type + " " + std::to_string(config.index);
  info.job = job_of(all);
  info.size = narrow<std::int32_t>(all.size());
  info.of_more_than_ranks = !config.addresses("ps").empty();
  if (config.type != "chief" && config.type != "worker") {
    info.no_member = "TF_CONFIG makes this process " + config.type + " " +
                     std::to_string(config.index) +
                     ", which is no rank of the training: only a chief and workers are";
    return std::optional(std::move(info));
  }
  info.rank = narrow<std::int32_t>(config.index + (config.type == "worker" ? chiefs : 0));
  info.said += " of " + std::to_string(info.size) + " ranks";
  RONDE_ASSIGN_OR_RETURN(info.point, point_of(all));
  return std::optional(std::move(info));
}

}  // namespace ronde::runtime
