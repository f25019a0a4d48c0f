// SPDX-License-Identifier: Apache-2.0
// TF_CONFIG, the JSON by which TensorFlow's processes are told who they are:
//   {"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}
// The ranks' identity and the tasks of parameter servers read it here, so that both say the same.
// Headers alone (nlohmann's too), so that programs that see no other part of Ronde may include it.
// Pure.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ronde::base {

struct TfConfig {
  // The addresses of each kind of task, by index; "master", an older word, reads as "chief". Empty:
  // a job of one.
  std::map<std::string, std::vector<std::string>, std::less<>> cluster;
  std::string type;  // of this process; empty in a job of one
  std::int64_t index = 0;

  [[nodiscard]] const std::vector<std::string>& addresses(std::string_view kind) const {
    static const std::vector<std::string> kNone;
    const auto found = cluster.find(kind);
    return found == cluster.end() ? kNone : found->second;
  }
};

// A configuration, or what is wrong with it: one line that begins with TF_CONFIG.
using TfConfigOrError = std::variant<TfConfig, std::string>;

namespace tf_config {

using Json = nlohmann::json;

inline std::string refused(const std::string& text) {
  constexpr const char* kExample =
      R"({"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}})";
  return "TF_CONFIG " + text + ": expected something like " + kExample +
         "; RONDE_ALONE=1 makes this process a job of one";
}

// The member of an object, or nullptr.
inline const Json* member(const Json& json, std::string_view name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() ? nullptr : &*found;
}

// A list, or a map from "0", "1", ... as TensorFlow's ClusterSpec takes it.
inline std::string read_addresses(const std::string& kind, const Json& json,
                                  std::vector<std::string>& addresses) {
  const std::string what = "has a cluster whose '" + kind + "'";
  if (!json.is_array() && !json.is_object()) return refused(what + " is no list of addresses");
  addresses.resize(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) {
    const Json* const one = json.is_array() ? &json[i] : member(json, std::to_string(i));
    if (one == nullptr) return refused(what + " does not number its addresses from 0");
    if (!one->is_string()) {
      return refused(what + " holds something else than addresses (\"host:port\")");
    }
    addresses[i] = one->get<std::string>();
  }
  return "";
}

inline std::string read_cluster(const Json& json, TfConfig& config) {
  if (!json.is_object()) return refused("has a cluster that is no JSON object");
  for (const auto& [kind, list] : json.items()) {
    std::vector<std::string> addresses;
    if (std::string wrong = read_addresses(kind, list, addresses); !wrong.empty()) return wrong;
    auto& all = config.cluster[kind == "master" ? "chief" : kind];
    all.insert(all.end(), addresses.begin(), addresses.end());
  }
  return config.addresses("chief").size() > 1 ? refused("names more than one chief") : "";
}

inline std::string read_task(const Json& task, TfConfig& config) {
  const Json* const type = member(task, "type");
  if (type == nullptr || !type->is_string()) {
    return refused("has a task without a type (chief, worker, ps, evaluator)");
  }
  config.type = type->get<std::string>();
  if (config.type == "master") config.type = "chief";
  const Json* const index = member(task, "index");
  // Some launchers write the index as a text.
  std::string text = "nothing";
  if (index != nullptr) text = index->is_string() ? index->get<std::string>() : index->dump();
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, config.index);
  constexpr std::int64_t kMost = std::int64_t{1} << 20U;
  if (index == nullptr && config.cluster.empty()) return "";  // the only one
  if (error != std::errc() || stop != end || config.index < 0 || config.index > kMost) {
    return refused("has a task.index=" + text + " that is no whole number from 0");
  }
  return "";
}

// Who is told a task, but no cluster, is alone where it may be: an index above 0 says that there
// are others. Nor is a key that is almost one of the two taken for nothing.
inline std::string read_alone(const Json& json, TfConfig& config) {
  if (json.contains("sparseCluster")) {
    return refused(
        "has a sparseCluster, which does not say how many workers there are (enableDynamicWorker "
        "of Kubeflow's TFJob: turn it off)");
  }
  for (const auto& [key, value] : json.items()) {
    std::string small = key;
    std::ranges::transform(small, small.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? char(c + ('a' - 'A')) : c; });
    if (small != key && (small == "cluster" || small == "task")) {
      return refused("has a key '" + key + "', which nobody reads");
    }
  }
  const Json* const task = member(json, "task");
  if (task == nullptr || task->empty()) return "";
  if (std::string wrong = read_task(*task, config); !wrong.empty()) return wrong;
  if (config.index > 0) {
    return refused("makes this process " + config.type + " " + std::to_string(config.index) +
                   ", and names no cluster");
  }
  config = {};
  return "";
}

}  // namespace tf_config

inline TfConfigOrError read_tf_config(std::string_view text) {
  using tf_config::Json;
  using tf_config::member;
  using tf_config::refused;
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return refused("is no JSON object");
  TfConfig config;
  const Json* const cluster = member(json, "cluster");
  if (cluster == nullptr || (cluster->is_object() && cluster->empty())) {
    std::string wrong = tf_config::read_alone(json, config);
    return wrong.empty() ? TfConfigOrError(std::move(config)) : TfConfigOrError(std::move(wrong));
  }
  if (std::string wrong = tf_config::read_cluster(*cluster, config); !wrong.empty()) return wrong;
  const Json* const task = member(json, "task");
  if (task == nullptr) return refused("names a cluster, but not this process");
  if (std::string wrong = tf_config::read_task(*task, config); !wrong.empty()) return wrong;
  const std::size_t peers = config.addresses(config.type).size();
  const bool listed = config.type == "chief" || config.type == "worker";
  if (listed && config.index >= static_cast<std::int64_t>(peers)) {
    return refused("makes this process " + config.type + " " + std::to_string(config.index) +
                   ", but its cluster has " + std::to_string(peers) + " of them");
  }
  return config;
}

}  // namespace ronde::base
