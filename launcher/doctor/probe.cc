// SPDX-License-Identifier: Apache-2.0
// What a host has, as lines.
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/host_name.h"
#include "base/process/cores.h"
#include "base/process/environment.h"
#include "base/process/file_descriptor.h"
#include "base/text.h"
#include "base/wire/interfaces.h"
#include "base/wire/sha256.h"
#include "base/wire/tcp_socket.h"
#include "launcher/doctor/doctor.h"
#include "launcher/machine.h"

namespace ronde::launcher {

namespace {

using base::FileDescriptor;

// A packet that a firewall drops has no answer.
constexpr std::chrono::seconds kConnectTime(2);

void say(const std::string& line) { std::puts(base::printable(line).c_str()); }
void say_fact(const std::string& name, const std::string& value) {
  say("fact " + name + " " + value);
}

std::string limit_text(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return "unlimited";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
}

std::string hash_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  return base::hex_of(base::sha256(std::as_bytes(std::span(bytes)))).substr(0, 12);
}

void say_facts() {
  std::string files;
  for (const auto& [name, path] : libraries_of_this_host()) {
    if (!path.empty()) files += name + "=" + hash_of(path) + " ";
  }
  say_fact("files", files);
  say_fact("cpu", cpu_of_this_host().model);
  say_fact("features", cpu_of_this_host().features);
  struct statvfs shm {};
  const bool there = ::statvfs("/dev/shm", &shm) == 0;
  say_fact("shm", std::to_string(there ? shm.f_bavail * shm.f_frsize : 0));
  const FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  say_fact("pidfd", pidfd.valid() ? "1" : "0");
  const FileDescriptor memory(::memfd_create("ronderun doctor", MFD_CLOEXEC));
  say_fact("memfd", memory.valid() ? "1" : "0");
  say_fact("descriptors", limit_text(RLIMIT_NOFILE));
  say_fact("processes", limit_text(RLIMIT_NPROC));
  say_fact("memlock", limit_text(RLIMIT_MEMLOCK));
  std::error_code error;
  say_fact("rdma", std::filesystem::exists("/sys/class/infiniband", error) ? "1" : "0");
  const auto allowed = std::ssize(base::allowed_processors());
  say_fact("affinity", std::to_string(allowed));
  say_fact("cores", std::to_string(base::cores_of_cgroups(allowed)));
}

std::string network_of(const base::InterfaceAddress& one) {
  base::IpAddress network = one.address;
  for (int bit = one.prefix_length; bit < 128; ++bit) {
    auto& byte = network.bytes[static_cast<std::size_t>(bit) / 8];
    byte = static_cast<std::uint8_t>(byte & ~(0x80U >> (static_cast<unsigned>(bit) % 8)));
  }
  return text_of(network) + "/" + std::to_string(one.prefix_length);
}

// Where the leaders of a job would listen.
base::Status listen(std::vector<FileDescriptor>& sockets) {
  const std::vector<std::string> environment = base::process_environment();
  RONDE_ASSIGN_OR_RETURN(const auto config, base::Config::from_environment(environment));
  RONDE_ASSIGN_OR_RETURN(const auto all, base::list_interfaces());
  for (const base::InterfaceAddress& one : all) {
    if (!one.up) say("down " + one.name + " (" + text_of(one.address) + ")");
  }
  RONDE_ASSIGN_OR_RETURN(
      const auto chosen,
      base::choose_addresses(all, base::wanted_interfaces(config.interfaces, environment),
                             base::host_name()));
  for (const base::InterfaceAddress& one : chosen) {
    base::Result<FileDescriptor> socket =
        base::listen_on({one.address, config.ports.first}, one.index);
    for (int i = 1; !socket.ok() && i < config.ports.size(); ++i) {
      socket = base::listen_on({one.address, config.ports.at(i)}, one.index);
    }
    if (!socket.ok() && config.ports.size() > 0) return config.ports.exhausted(socket.status());
    RONDE_RETURN_IF_ERROR(socket.status());
    const auto end = base::own_end(*socket);
    if (end) say("door " + one.name + " " + network_of(one) + " " + text_of(*end));
    sockets.push_back(std::move(*socket));
  }
  return {};
}

// To all at once.
void connect_to(const std::vector<std::string>& endpoints) {
  std::vector<std::pair<std::string, FileDescriptor>> attempts;
  for (const std::string& text : endpoints) {
    const auto endpoint = base::parse_endpoint(text);
    if (!endpoint) continue;
    auto socket = base::begin_connect(*endpoint, 0, {});
    if (!socket.ok()) say("reached " + text + " " + socket.status().message());
    if (socket.ok()) attempts.emplace_back(text, std::move(*socket));
  }
  const base::SteadyClock clock;
  const base::Instant until = clock.after(kConnectTime);
  while (!attempts.empty() && clock.now() < until) {
    std::vector<pollfd> entries;
    entries.reserve(attempts.size());
    for (const auto& one : attempts) entries.push_back({one.second.get(), POLLOUT, 0});
    ::poll(entries.data(), entries.size(), base::poll_milliseconds(clock, until));
    for (std::size_t i = entries.size(); i-- > 0;) {
      if (entries[i].revents == 0) continue;
      const int error = base::pending_error(attempts[i].second);
      say("reached " + attempts[i].first + " " + (error == 0 ? "ok" : base::error_text(error)));
      attempts.erase(attempts.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  for (const auto& one : attempts) say("reached " + one.first + " dropped");
}

}  // namespace

int run_probe() {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
  say_facts();
  std::vector<FileDescriptor> sockets;
  const base::Status listens = listen(sockets);
  if (!listens.ok()) say("trouble " + listens.message());
  say("ready");
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "clock") {
      say("clock " + std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count()));
      continue;
    }
    connect_to(base::words_of(line));
    say("done");
  }
  return EXIT_SUCCESS;
}

}  // namespace ronde::launcher
