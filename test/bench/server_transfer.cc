// SPDX-License-Identifier: Apache-2.0
// A pull and a push of many numbers beside memcpy: server_transfer [MiB] [servers] [host:port...]
// Without addresses servers run in this process, over ipc. With addresses it is the worker of
// servers that were started as `server_transfer serve <index> <servers> <host:port>...` elsewhere.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/loop/replica.h"
#include "bindings/trainer/server/parameter_server.h"

namespace {

namespace trainer = ronde::trainer;
namespace server = ronde::trainer::server;

constexpr int kTimes = 10;

server::Tasks tasks_of(const std::vector<std::string>& servers, server::Role role,
                       std::uint32_t index) {
  server::Tasks tasks;
  tasks.servers = servers;
  tasks.workers = {"127.0.0.1:1"};
  tasks.role = role;
  tasks.index = index;
  return tasks;
}

double median(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

// How long it takes to copy as many bytes once there and once back.
double copy_seconds(std::size_t floats) {
  std::vector<float> from(floats, 1.0F);
  std::vector<float> to(floats, 2.0F);
  std::vector<double> seconds;
  for (int i = 0; i < kTimes; ++i) {
    const double start = trainer::steady_seconds();
    std::memcpy(to.data(), from.data(), floats * sizeof(float));
    std::memcpy(from.data(), to.data(), floats * sizeof(float));
    seconds.push_back(trainer::steady_seconds() - start);
  }
  return median(seconds);
}

void measure(std::size_t mib, const std::vector<std::string>& servers) {
  const std::size_t floats = mib * (std::size_t{1} << 20U) / sizeof(float);
  trainer::Parameter parameter("v", {floats});
  server::ParameterServerOptions options;
  options.partition = {server::Partition::Kind::kFixed, servers.size()};
  server::ParameterServer client(tasks_of(servers, server::Role::kWorker, 0), {&parameter},
                                 options);
  client.pull();
  (void)client.push(1.0, 0.1);
  std::vector<double> pulls;
  std::vector<double> pushes;
  std::vector<double> both;
  for (int i = 0; i < kTimes; ++i) {
    const double start = trainer::steady_seconds();
    client.pull();
    const double middle = trainer::steady_seconds();
    (void)client.push(1.0, 0.1);
    const double end = trainer::steady_seconds();
    pulls.push_back(middle - start);
    pushes.push_back(end - middle);
    both.push_back(end - start);
  }
  const double copy = copy_seconds(floats);
  const auto bytes = 2.0 * static_cast<double>(floats) * sizeof(float);
  std::printf(
      "mib=%zu servers=%zu pull_ms=%.2f push_ms=%.2f both_ms=%.2f gbit_per_second=%.3f "
      "memcpy_ms=%.2f of_memcpy=%.3f\n",
      mib, servers.size(), 1e3 * median(pulls), 1e3 * median(pushes), 1e3 * median(both),
      bytes * 8e-9 / median(both), 1e3 * copy, copy / median(both));
  (void)client.finish();
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() >= 4 && arguments[0] == "serve") {
    const std::vector<std::string> servers(arguments.begin() + 3, arguments.end());
    serve(tasks_of(servers, server::Role::kServer,
                   static_cast<std::uint32_t>(std::stoul(arguments[1]))),
          server::ParameterServerOptions{});
    return 0;
  }
  const std::size_t mib = arguments.empty() ? 64 : std::stoul(arguments[0]);
  const std::size_t count = arguments.size() < 2 ? 1 : std::stoul(arguments[1]);
  std::vector<std::string> servers(arguments.begin() + std::min<std::ptrdiff_t>(2, argc - 1),
                                   arguments.end());
  std::vector<std::jthread> threads;
  if (servers.empty()) {
    for (std::size_t i = 0; i < count; ++i) {
      servers.push_back("ipc://@ronde-transfer-" + std::to_string(::getpid()) + "-" +
                        std::to_string(i));
    }
    for (std::uint32_t i = 0; i < count; ++i) {
      threads.emplace_back([servers, i] {
        server::ParameterServerOptions quiet;
        quiet.say = [](const std::string&) {};
        serve(tasks_of(servers, server::Role::kServer, i), quiet);
      });
    }
  }
  measure(mib, servers);
} catch (const std::exception& error) {
  std::fprintf(stderr, "server_transfer: %s\n", error.what());
  return 1;
}
