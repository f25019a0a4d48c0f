// SPDX-License-Identifier: Apache-2.0
// The word of TF_CONFIG: its chief is rank 0, and its workers follow.
#include "base/words/tf_config.h"

#include <variant>
#include <vector>

#include "base/numbers.h"
#include "base/process/secrets.h"
#include "base/text.h"
#include "base/wire/sha256.h"
#include "runtime/start/variables.h"
#include "runtime/start/words.h"

namespace ronde::runtime {

using base::narrow;
using base::Result;
using base::Status;

namespace {

Result<MeetingPoint> point_of(const std::vector<std::string>& all) {
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

MaybeWord word_of_tf_config(std::span<const std::string> environment) {
  const auto text = variable(environment, "TF_CONFIG");
  if (!text) return std::optional<Word>();
  const auto read = base::read_tf_config(*text);
  if (const auto* const wrong = std::get_if<std::string>(&read)) {
    return Status::error(base::Code::kInvalidArgument, *wrong);
  }
  const auto& config = std::get<base::TfConfig>(read);
  if (config.cluster.empty()) return std::optional<Word>();  // as TensorFlow does

  std::vector<std::string> all = config.addresses("chief");
  const auto chiefs = std::ssize(all);
  const auto& workers = config.addresses("worker");
  all.insert(all.end(), workers.begin(), workers.end());
  Word word;
  word.launcher = "whatever set TF_CONFIG";
  word.variables = {"TF_CONFIG"};
  word.said = "TF_CONFIG: " + config.type + " " + std::to_string(config.index);
  word.job = job_of(all);
  word.size = narrow<std::int32_t>(all.size());
  word.of_more_than_ranks = !config.addresses("ps").empty();
  if (config.type != "chief" && config.type != "worker") {
    word.no_member = "TF_CONFIG makes this process " + config.type + " " +
                     std::to_string(config.index) +
                     ", which is no rank of the training: only a chief and workers are";
    return std::optional(std::move(word));
  }
  word.rank = narrow<std::int32_t>(config.index + (config.type == "worker" ? chiefs : 0));
  word.said += " of " + std::to_string(word.size) + " ranks";
  RONDE_ASSIGN_OR_RETURN(word.point, point_of(all));
  return std::optional(std::move(word));
}

}  // namespace ronde::runtime
