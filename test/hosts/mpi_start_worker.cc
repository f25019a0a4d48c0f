// SPDX-License-Identifier: Apache-2.0
// A rank that opens an engine in a process that has started MPI itself, so that MPI's ports are
// known before, and every new one is Ronde's. Meanwhile it plays the stranger: it finds Ronde's
// port among its own sockets and connects with garbage, as often as it is told. It writes its
// report into a file of its own. One rank can be made to come late, when all leaders listen
// already.
//
// usage: mpi_start_worker folder=DIR [late=RANK] [garbage=N] [steps=N] [level=LEVEL]
// LEVEL: what MPI is told of threads: funneled, serialized or multiple.
#include <arpa/inet.h>
#include <fcntl.h>
#include <mpi.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <random>
#include <ronde/ronde.hpp>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "test/support/words.h"

namespace {

constexpr auto kLate = std::chrono::milliseconds(1500);
constexpr auto kWaitForOthers = std::chrono::seconds(10);

struct Settings {
  std::string folder;
  int late = -1;
  std::uint64_t garbage = 0;  // connections to each port while the engine opens, and as many later
  int steps = 50;
  int level = MPI_THREAD_MULTIPLE;
};

int level_of(const std::string& name) {
  if (name == "single") return MPI_THREAD_SINGLE;
  if (name == "funneled") return MPI_THREAD_FUNNELED;
  if (name == "serialized") return MPI_THREAD_SERIALIZED;
  if (name == "multiple") return MPI_THREAD_MULTIPLE;
  throw std::invalid_argument("level=" + name);
}

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto [key, value] = ronde::testing::key_and_value(word);
    if (key == "folder") {
      settings.folder = value;
    } else if (key == "late") {
      settings.late = std::stoi(value);
    } else if (key == "garbage") {
      settings.garbage = std::stoul(value);
    } else if (key == "steps") {
      settings.steps = std::stoi(value);
    } else if (key == "level") {
      settings.level = level_of(value);
    } else {
      throw std::invalid_argument("unknown word " + word);
    }
  }
  return settings;
}

int number_of_environment(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) throw std::runtime_error(std::string("start it with mpirun: no ") + name);
  return std::stoi(text);
}

// Whether this rank must still keep the others waiting. It is global, because MPI's functions have
// no argument for it.
std::atomic<bool>& hesitates() {
  static std::atomic<bool> value = false;
  return value;
}

// As in /proc/net/tcp: "0A00D50A:1F90", an address in the order of its bytes in memory.
using Listening = std::set<std::string>;

// The address of a socket of TCP that listens; empty for any other descriptor.
std::string address_of_listener(int descriptor) {
  int listens = 0;
  socklen_t length = sizeof listens;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) {
    return "";
  }
  sockaddr_storage name{};
  length = sizeof name;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &length) != 0) return "";
  std::ostringstream text;
  text << std::hex << std::uppercase << std::setfill('0');
  if (name.ss_family == AF_INET) {
    sockaddr_in of_ipv4{};
    std::memcpy(&of_ipv4, &name, sizeof of_ipv4);
    text << std::setw(8) << of_ipv4.sin_addr.s_addr << ':' << std::setw(4)
         << ntohs(of_ipv4.sin_port);
  } else if (name.ss_family == AF_INET6) {
    sockaddr_in6 of_ipv6{};
    std::memcpy(&of_ipv6, &name, sizeof of_ipv6);
    for (const unsigned byte : of_ipv6.sin6_addr.s6_addr) text << std::setw(2) << byte;
    text << ':' << std::setw(4) << ntohs(of_ipv6.sin6_port);
  }
  return text.str();
}

// The ports on which this process listens. It asks its own descriptors: the kernel would walk
// through the tables of all connections for /proc/self/net/tcp.
Listening listening() {
  Listening found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const std::string address = address_of_listener(std::stoi(entry.path().filename().string()));
    if (!address.empty()) found.insert(address);
  }
  return found;
}

// Connects to the job's ports and sends garbage.
//
// Thread safety: none; one thread uses it.
class Stranger {
 public:
  // False: no process listens there.
  bool bother(const std::string& port) {
    constexpr std::size_t kMostKept = 100;
    if (port.size() != 13) return false;  // not IPv4
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = static_cast<in_addr_t>(std::stoul(port.substr(0, 8), nullptr, 16));
    to.sin_port = htons(static_cast<std::uint16_t>(std::stoul(port.substr(9), nullptr, 16)));
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) throw std::system_error(errno, std::generic_category(), "socket");
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) {
      ::close(socket);
      return false;
    }
    speak(socket);
    kept_.push_back(socket);
    if (kept_.size() > kMostKept) {
      ::close(kept_.front());
      kept_.pop_front();
    }
    return true;
  }
  void leave() {
    for (const int socket : kept_) ::close(socket);
    kept_.clear();
  }

 private:
  // In turn: nothing, noise, a hello with another secret, and half a hello that is then cut off.
  void speak(int socket) {
    std::array<char, 4096> noise{};
    for (char& letter : noise) letter = static_cast<char>(random_());
    std::array<char, 32> hello{};  // magic, version 1, host 1, secret: see links/hello.h
    std::memcpy(hello.data(), "RondeLdr\1\0\0\0\1\0\0\0", 16);
    std::copy_n(noise.begin(), 16, hello.begin() + 16);
    switch (turn_++ % 4) {
      case 1:
        say(socket, noise);
        break;
      case 2:
        say(socket, hello);
        break;
      case 3: {
        say(socket, std::span(hello).first(20));
        const linger at_once{.l_onoff = 1, .l_linger = 0};
        ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        ::shutdown(socket, SHUT_RDWR);
        break;
      }
      default:
        break;
    }
  }
  // The connection may be closed while it sends.
  static void say(int socket, std::span<const char> words) {
    if (::send(socket, words.data(), words.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
  }

  std::mt19937_64 random_{1};
  std::uint64_t turn_ = 0;
  std::deque<int> kept_;
};

// Connects to every port that begins to listen.
class Siege {
 public:
  Siege(Listening of_mpi, std::uint64_t garbage) : of_mpi_(std::move(of_mpi)), garbage_(garbage) {
    thread_ = std::thread([this] {
      while (!over_) look();
    });
  }
  Siege(const Siege&) = delete;
  Siege& operator=(const Siege&) = delete;
  ~Siege() { end(); }

  void end() {
    over_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // After end().
  [[nodiscard]] const Listening& ports() const { return ports_; }
  [[nodiscard]] std::uint64_t connections() const { return connections_; }

 private:
  void look() {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    for (const std::string& port : listening()) {
      if (of_mpi_.contains(port) || !ports_.insert(port).second) continue;
      for (std::uint64_t i = 0; i < garbage_ && !over_; ++i) {
        connections_ += stranger_.bother(port) ? 1U : 0U;
      }
    }
  }

  const Listening of_mpi_;
  const std::uint64_t garbage_;
  std::atomic<bool> over_ = false;
  Listening ports_;
  std::uint64_t connections_ = 0;
  Stranger stranger_;  // holds what it has connected until the end
  std::thread thread_;
};

// Meanwhile strangers knock at the ports that listened at start.
std::uint64_t work(ronde::Engine& engine, const Settings& settings, const Listening& ports) {
  std::uint64_t heard = 0;
  Stranger stranger;
  std::vector<float> data(10'000);
  for (int step = 0; step < settings.steps; ++step) {
    for (const std::string& port : ports) {
      for (std::uint64_t i = 0; i < settings.garbage / static_cast<std::uint64_t>(settings.steps);
           ++i) {
        heard += stranger.bother(port) ? 1U : 0U;
      }
    }
    std::fill(data.begin(), data.end(), static_cast<float>(engine.rank() + step));
    engine.allreduce_blocking("data", std::span(data), ronde::sum);
    const int ranks = engine.size();
    const int sum = ranks * (ranks - 1) / 2 + ranks * step;
    for (const float x : data) {
      if (x != static_cast<float>(sum))
        throw std::runtime_error("wrong sum in step " + std::to_string(step));
    }
  }
  stranger.leave();
  return heard;
}

std::string run(const Settings& settings) {
  const Listening before = listening();
  Siege siege(before, settings.garbage);
  hesitates() = settings.late == number_of_environment("OMPI_COMM_WORLD_RANK");
  const auto begin = std::chrono::steady_clock::now();
  ronde::Engine engine;
  const std::chrono::duration<double> opening = std::chrono::steady_clock::now() - begin;
  siege.end();
  const Listening after = listening();
  const std::uint64_t heard = work(engine, settings, siege.ports());
  engine.close();
  std::ostringstream text;
  text << "opened after=" << opening.count() << " ports=" << siege.ports().size()
       << " garbage=" << siege.connections() << " still=" << (after == before ? 0 : 1)
       << " heard=" << heard;
  return text.str();
}

// mpirun kills the other ranks as soon as one has failed, so a rank waits until all have printed
// why they fail.
void leave_note(const std::string& folder, const std::string& note) {
  const int rank = number_of_environment("OMPI_COMM_WORLD_RANK");
  const int ranks = number_of_environment("OMPI_COMM_WORLD_SIZE");
  const std::string path = folder + "/rank-";
  std::ofstream(path + std::to_string(rank) + ".tmp") << note << '\n';
  std::filesystem::rename(path + std::to_string(rank) + ".tmp", path + std::to_string(rank));
  const auto end = std::chrono::steady_clock::now() + kWaitForOthers;
  for (int other = 0; other < ranks; ++other) {
    while (!std::filesystem::exists(path + std::to_string(other)) &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
}

}  // namespace

// Ronde's ranks exchange with this call on which host they are and which engine they open (two
// calls each), and then where their leaders listen, before any leader connects: this version, which
// replaces MPI's own, can make that take long.
extern "C" [[gnu::visibility("default")]] int MPI_Iallgatherv(
    const void* data, int count, MPI_Datatype type, void* all, const int* counts, const int* places,
    MPI_Datatype type_of_all, MPI_Comm communicator, MPI_Request* request) {
  static std::atomic<int> calls = 0;
  constexpr int kAddresses = 5;
  if (++calls == kAddresses && hesitates()) std::this_thread::sleep_for(kLate);
  return PMPI_Iallgatherv(data, count, type, all, counts, places, type_of_all, communicator,
                          request);
}

int main(int argc, char** argv) {
  try {
    const Settings settings = parse(argc, argv);
    int offered = 0;
    MPI_Init_thread(&argc, &argv, settings.level, &offered);
    std::string note;
    int code = 0;
    try {
      note = run(settings);
    } catch (const std::exception& error) {
      note = std::string("failed: ") + error.what();
      code = 1;
    }
    leave_note(settings.folder, note);
    // A job that failed may not be able to end MPI together.
    if (code != 0) std::_Exit(code);
    MPI_Finalize();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mpi_start_worker: %s\n", error.what());
    return 1;
  }
}
