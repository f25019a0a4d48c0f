// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/tasks.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <utility>
#include <variant>

#include "base/words/tf_config.h"
#include "bindings/trainer/fit/agreement.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/texts.h"

namespace ronde::trainer::server {

namespace {

[[noreturn]] void refuse(const std::string& text) { throw TrainerError(text, kExitConfiguration); }

std::vector<std::string> list_of(const std::string& text) {
  std::vector<std::string> list;
  std::istringstream parts(text);
  for (std::string one; std::getline(parts, one, ',');) {
    if (!one.empty()) list.push_back(one);
  }
  return list;
}

std::string text_of_list(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& one : list) text += (text.empty() ? "" : ",") + one;
  return text;
}

Role role_of(const std::string& name) {
  if (name == "ps") return Role::kServer;
  if (name == "worker") return Role::kWorker;
  if (name == "chief") return Role::kChief;
  if (name == "evaluator") return Role::kEvaluator;
  refuse("TF_CONFIG has a task of type '" + name + "': use ps, worker, chief or evaluator");
}

void check(const Tasks& tasks) {
  if (tasks.servers.empty()) refuse("--ps_hosts names no server: name at least one, as host:port");
  if (tasks.workers.empty()) refuse("--worker_hosts names no worker: name at least one");
  if (tasks.servers.size() > kMostServers) {
    refuse("--ps_hosts names more than " + std::to_string(kMostServers) + " servers");
  }
  std::map<std::string, std::string> seen;
  const auto add = [&seen](const std::vector<std::string>& list, const std::string& role) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string name = role + " " + std::to_string(i);
      const std::string port = list[i].substr(std::min(list[i].size(), list[i].rfind(':') + 1));
      const auto number = number_of<std::uint16_t>(port).value_or(0);
      if (list[i].find("://") == std::string::npos &&
          (list[i].find(':') == std::string::npos || number == 0)) {
        refuse(name + " is at '" + list[i] +
               "', which has no port from 1 to 65535: name it as host:port");
      }
      const auto [other, is_new] = seen.emplace(list[i], name);
      if (!is_new) {
        refuse(other->second + " and " + name + " are both at " + list[i] +
               ": give each task an address of its own");
      }
    }
  };
  add(tasks.servers, "ps");
  add(tasks.workers, "worker");
  add(tasks.chief, "chief");
  if (tasks.role == Role::kChief && tasks.chief.size() != 1) {
    refuse("this task is the chief, and --chief_hosts names " + std::to_string(tasks.chief.size()) +
           ": name one, on all tasks");
  }
  std::size_t count = 1;
  std::string flag = "the chief and the evaluator are one task each";
  if (tasks.role == Role::kServer) {
    count = tasks.servers.size();
    flag = "--ps_hosts names " + std::to_string(count);
  } else if (tasks.role == Role::kWorker) {
    count = tasks.workers.size();
    flag = "--worker_hosts names " + std::to_string(count);
  }
  if (tasks.index >= count) {
    refuse("--task_index is " + std::to_string(tasks.index) + ", and " + flag +
           ": use an index from 0 to " + std::to_string(count - 1));
  }
}

// None if TF_CONFIG names no servers.
std::optional<Tasks> tasks_of_environment() {
  const auto text = variable("TF_CONFIG");
  if (!text || text->empty() || variable("RONDE_ALONE") == "1") return {};
  const auto read = base::read_tf_config(*text);
  if (const auto* const wrong = std::get_if<std::string>(&read)) refuse(*wrong);
  const auto& config = std::get<base::TfConfig>(read);
  if (config.addresses("ps").empty()) return {};
  Tasks tasks;
  tasks.servers = config.addresses("ps");
  tasks.workers = config.addresses("worker");
  tasks.chief = config.addresses("chief");
  tasks.role = role_of(config.type);
  tasks.index = static_cast<std::uint32_t>(config.index);
  return tasks;
}

// A port that is free now.
std::string free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  const bool found = socket >= 0 &&
                     ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (socket >= 0) ::close(socket);
  if (!found) throw TrainerError("this host has no free port");
  return std::to_string(ntohs(address.sin_port));
}

}  // namespace

Address Tasks::self() const {
  if (role == Role::kServer) return {role, index, 0};
  std::random_device draw;
  return {role, index, (std::uint64_t{draw()} << 32U | draw()) | 1U};
}

std::string Tasks::text() const {
  return "--ps_hosts " + text_of_list(servers) + "\n--worker_hosts " + text_of_list(workers) +
         "\n--chief_hosts " + (chief.empty() ? "none" : text_of_list(chief)) + "\nRONDE_JOB " +
         variable("RONDE_JOB").value_or("none");
}

std::vector<std::string> Tasks::all() const {
  std::vector<std::string> list = servers;
  list.insert(list.end(), workers.begin(), workers.end());
  list.insert(list.end(), chief.begin(), chief.end());
  return list;
}

std::optional<Tasks> tasks_of(const TaskFlags& flags) {
  Tasks tasks;
  if (flags.any()) {
    if (!flags.role) refuse("--job_name is missing: use ps, worker, chief or evaluator");
    tasks.servers = list_of(flags.servers);
    tasks.workers = list_of(flags.workers);
    tasks.chief = list_of(flags.chief);
    tasks.role = *flags.role;
    tasks.index = flags.index.value_or(0);
  } else {
    auto said = tasks_of_environment();
    if (!said) return {};
    tasks = std::move(*said);
  }
  check(tasks);
  return tasks;
}

Tasks tasks_of_ranks(Replica& replica, std::uint32_t servers) {
  const auto size = static_cast<std::uint32_t>(replica.size());
  const auto rank = static_cast<std::uint32_t>(replica.rank());
  if (servers == 0 || servers >= size) {
    refuse("--servers is " + std::to_string(servers) + " in a job of " + std::to_string(size) +
           " ranks: start more ranks, or use fewer servers, so that some serve and some work");
  }
  std::array<char, 256> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  const auto hosts = gather_texts(replica, "server/hosts", host.data());
  const bool one_host = std::set(hosts.begin(), hosts.end()).size() == 1;
  // On one host: the name of a Unix socket.
  const std::string mine = one_host ? "ipc://@ronde-" + std::to_string(::getpid()) + "-" +
                                          std::to_string(Tasks{}.self().incarnation)
                                    : std::string(host.data()) + ":" + free_port();
  const auto addresses = gather_texts(replica, "server/addresses", mine);
  Tasks tasks;
  tasks.workers.assign(addresses.begin(), addresses.end() - servers);
  tasks.servers.assign(addresses.end() - servers, addresses.end());
  tasks.role = rank < size - servers ? Role::kWorker : Role::kServer;
  tasks.index = rank < size - servers ? rank : rank - (size - servers);
  return tasks;
}

}  // namespace ronde::trainer::server
