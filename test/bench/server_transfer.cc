// SPDX-License-Identifier: Apache-2.0
// A pull and a push of many numbers beside memcpy, and beside the same bytes through a socket of
// this host without anything around it: server_transfer [MiB] [servers] [host:port...]
// Without addresses servers run in this process, over ipc. With addresses it is the worker of
// servers that were started as `server_transfer serve <index> <servers> <host:port>...` elsewhere.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/server/parameter_server.h"

namespace {

namespace trainer = ronde::trainer;
namespace server = ronde::trainer::server;

constexpr int kTimes = 10;
constexpr std::size_t kPiece = std::size_t{1} << 20U;  // of a read or write of a plain socket

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

// The same through a pair of sockets, by a thread at each end.
double socket_seconds(std::size_t floats) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return 0.0;
  std::vector<float> from(floats, 1.0F);
  std::vector<float> to(floats, 2.0F);
  const auto move_all = [](int end, std::span<float> memory, auto&& call) {
    auto bytes = std::as_writable_bytes(memory);
    while (!bytes.empty()) {
      const ssize_t moved = call(end, bytes.data(), std::min(bytes.size(), kPiece));
      if (moved <= 0) return;
      bytes = bytes.subspan(static_cast<std::size_t>(moved));
    }
  };
  std::vector<double> seconds;
  for (int i = 0; i < kTimes; ++i) {
    const double start = trainer::steady_seconds();
    for (int way = 0; way < 2; ++way) {
      const std::jthread sender([&] { move_all(ends[0], from, ::write); });
      move_all(ends[1], to, ::read);
    }
    seconds.push_back(trainer::steady_seconds() - start);
  }
  for (const int end : ends) ::close(end);
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
      "memcpy_ms=%.2f of_memcpy=%.3f socket_ms=%.2f\n",
      mib, servers.size(), 1e3 * median(pulls), 1e3 * median(pushes), 1e3 * median(both),
      bytes * 8e-9 / median(both), 1e3 * copy, copy / median(both), 1e3 * socket_seconds(floats));
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
