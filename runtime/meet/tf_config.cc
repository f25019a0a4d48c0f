// SPDX-License-Identifier: Apache-2.0
// The word of TF_CONFIG, the JSON by which TensorFlow's processes are told who they are:
//   {"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index":
//   0}}
// It is read with nlohmann's library, which the trainer uses too: headers alone, private to this
// file, so that libronde.so still needs the C++ library and nothing else.
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/numbers.h"
#include "runtime/meet/variables.h"
#include "runtime/meet/words.h"

namespace ronde::runtime {

using base::Code;
using base::narrow;
using base::Result;
using base::Status;

namespace {

using Json = nlohmann::json;

constexpr const char* kExample =
    R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}})";

Status refused_tf_config(const std::string& text) {
  return Status::error(Code::kInvalidArgument, "TF_CONFIG " + text);
}

// The member of an object, or nullptr.
const Json* member(const Json& json, std::string_view name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() ? nullptr : &*found;
}

// The addresses of one kind of task; empty where there is none.
Result<std::vector<std::string>> addresses_of(const Json& cluster, const std::string& type) {
  std::vector<std::string> addresses;
  const Json* const list = member(cluster, type);
  if (list == nullptr) return addresses;
  const std::string what = "has a cluster whose '" + type + "'";
  if (!list->is_array()) return refused_tf_config(what + " is no list of addresses");
  for (const Json& one : *list) {
    const auto* const text = one.get_ptr<const Json::string_t*>();
    if (text == nullptr)
      return refused_tf_config(what + " holds something else than addresses (\"host:port\")");
    addresses.push_back(*text);
  }
  return addresses;
}

struct Task {
  std::string type;
  std::int64_t index = 0;
};

Result<Task> task_of(const Json& json) {
  const Json* const task = member(json, "task");
  if (task == nullptr) {
    return refused_tf_config(
        "names a cluster, but not this process: expected a task with type and index");
  }
  const Json* const type = member(*task, "type");
  const auto* const word = type == nullptr ? nullptr : type->get_ptr<const Json::string_t*>();
  if (word == nullptr)
    return refused_tf_config("has a task without a type: expected \"chief\" or \"worker\"");
  // Some launchers write the index as a text.
  const Json* const index = member(*task, "index");
  std::string text = "nothing";
  if (index != nullptr) text = index->is_string() ? index->get<std::string>() : index->dump();
  const auto number = whole_number("task.index", text, 0, kMostRanks);
  if (!number.ok()) return refused_tf_config("is not valid: " + number.status().message());
  return Task{*word, *number};
}

// The ranks of the job: the chief comes first, then the workers.
struct Members {
  std::vector<std::string> chiefs;  // "master" is an older word for the chief
  std::vector<std::string> workers;
  std::string chief_word = "chief";
  bool has_servers = false;
};

Result<Members> members_of(const Json& cluster) {
  Members members;
  RONDE_ASSIGN_OR_RETURN(auto chiefs, addresses_of(cluster, "chief"));
  RONDE_ASSIGN_OR_RETURN(auto masters, addresses_of(cluster, "master"));
  if (!masters.empty()) members.chief_word = "master";
  if (chiefs.size() + masters.size() > 1)
    return refused_tf_config("names more than one chief: expected one");
  members.chiefs = chiefs.empty() ? std::move(masters) : std::move(chiefs);
  RONDE_ASSIGN_OR_RETURN(members.workers, addresses_of(cluster, "worker"));
  RONDE_ASSIGN_OR_RETURN(const auto servers, addresses_of(cluster, "ps"));
  members.has_servers = !servers.empty();
  return members;
}

Result<MeetingPoint> point_of(const Members& members) {
  std::vector<std::string> all = members.chiefs;
  all.insert(all.end(), members.workers.begin(), members.workers.end());
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

}  // namespace

MaybeWord word_of_tf_config(std::span<const std::string> environment) {
  const auto text = variable(environment, "TF_CONFIG");
  if (!text) return std::optional<Word>();
  const Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object()) {
    return refused_tf_config(std::string("is no JSON object: expected something like ") + kExample);
  }
  const Json* const cluster = member(json, "cluster");
  if (cluster == nullptr || (cluster->is_object() && cluster->empty())) {
    return std::optional<Word>();  // TensorFlow takes this for a job of one, too
  }
  if (!cluster->is_object()) {
    return refused_tf_config("has a cluster that is no JSON object: expected something like " +
                             std::string(kExample));
  }
  RONDE_ASSIGN_OR_RETURN(const auto task, task_of(json));
  RONDE_ASSIGN_OR_RETURN(const auto members, members_of(*cluster));

  Word word;
  word.launcher = "whatever set TF_CONFIG";
  word.said = "TF_CONFIG: " + task.type + " " + std::to_string(task.index);
  word.size = narrow<std::int32_t>(members.chiefs.size() + members.workers.size());
  word.of_more_than_ranks = members.has_servers;
  const bool chief = task.type == members.chief_word;
  if (!chief && task.type != "worker") {
    word.no_member = "TF_CONFIG makes this process " + task.type + " " +
                     std::to_string(task.index) +
                     ", which is no rank of the training: only a chief and workers are";
    return std::optional(std::move(word));
  }
  const auto& peers = chief ? members.chiefs : members.workers;
  if (task.index >= std::ssize(peers)) {
    return refused_tf_config("makes this process " + task.type + " " + std::to_string(task.index) +
                             ", but its cluster has " + std::to_string(peers.size()) + " of them");
  }
  word.rank =
      narrow<std::int32_t>(task.index) + (chief ? 0 : narrow<std::int32_t>(members.chiefs.size()));
  word.said += " of " + std::to_string(word.size) + " ranks";
  RONDE_ASSIGN_OR_RETURN(word.point, point_of(members));
  return std::optional(std::move(word));
}

}  // namespace ronde::runtime
