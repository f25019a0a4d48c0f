// SPDX-License-Identifier: Apache-2.0
// A rank of the jobs in which messages between two ranks are interrupted: each rank sends to the
// next one and receives from the one before, over and over, and checks every one. One rank can be
// told to strike, as in worker.cc, whose files it writes.
//
// usage: message_worker folder=DIR bytes=N,N,... [iterations=N] [victim=RANK at=N after=S signal=N]
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <ronde/ronde.hpp>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "test/support/words.h"

namespace {

using ronde::testing::now_ns;
using ronde::testing::write_file;

constexpr int kExitFailedJob = 3;  // a survivor's exit code
constexpr std::uint8_t kMark = 0xa5;

struct Settings {
  std::string folder;
  std::vector<std::size_t> bytes;
  std::uint64_t iterations = 0;  // 0: until something fails
  int victim = -1;
  std::uint64_t at = 3;
  double after = 0;
  int signal = SIGKILL;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  using Value = const std::string&;
  ronde::testing::read_words(
      argc, argv,
      {{"folder", [&](Value value) { settings.folder = value; }},
       {"bytes",
        [&](Value value) {
          std::istringstream list(value);
          for (std::string size; std::getline(list, size, ',');) {
            settings.bytes.push_back(std::stoul(size));
          }
        }},
       {"iterations", [&](Value value) { settings.iterations = std::stoul(value); }},
       {"victim", [&](Value value) { settings.victim = std::stoi(value); }},
       {"at", [&](Value value) { settings.at = std::stoul(value); }},
       {"after", [&](Value value) { settings.after = std::stod(value); }},
       {"signal", [&](Value value) { settings.signal = std::stoi(value); }}});
  return settings;
}

using Bytes = std::vector<std::uint8_t>;

std::uint8_t byte_of(int rank, std::uint64_t iteration) {
  return static_cast<std::uint8_t>(rank * 31 + static_cast<int>(iteration % 97));
}

bool all_are(const Bytes& bytes, std::uint8_t value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::uint8_t x) { return x == value; });
}

struct Memory {
  std::vector<Bytes> out;
  std::vector<Bytes> in;
};

void strike(const Settings& settings) {
  std::this_thread::sleep_for(std::chrono::duration<double>(settings.after));
  write_file(settings.folder + "/struck", std::to_string(now_ns()) + "\n");
  ::kill(::getpid(), settings.signal);
}

void iterate(const Settings& settings, ronde::Engine& engine, Memory& memory,
             std::uint64_t iteration) {
  const int rank = engine.rank();
  const int ranks = engine.size();
  const int before = (rank + ranks - 1) % ranks;
  if (rank == settings.victim && iteration == settings.at) {
    std::thread([settings] { strike(settings); }).detach();
  }
  std::vector<ronde::Work> works;
  for (std::size_t i = 0; i < memory.out.size(); ++i) {
    std::fill(memory.out[i].begin(), memory.out[i].end(), byte_of(rank, iteration));
    const auto tag = static_cast<std::int64_t>(i);
    works.push_back(engine.recv(before, tag, std::span(memory.in[i])));
    works.push_back(engine.send((rank + 1) % ranks, tag, std::span(memory.out[i])));
  }
  for (ronde::Work& work : works) work.wait();
  for (const Bytes& in : memory.in) {
    if (!all_are(in, byte_of(before, iteration))) throw std::runtime_error("a wrong message");
  }
}

std::string later_text(ronde::Engine& engine) {
  std::vector<float> one(1);
  try {
    engine.send_blocking(engine.rank(), 77, std::span(one));
  } catch (const ronde::Error& error) {
    return error.what();
  }
  return "no error";
}

// The error, and whether the memory is the caller's again.
std::string verdict_of(ronde::Engine& engine, Memory& memory, const ronde::Error& error) {
  std::ostringstream verdict;
  verdict << "failed_ns=" << now_ns() << "\nstatus=" << ronde_status_name(error.status())
          << "\nculprit=" << error.rank() << "\ntext=" << error.what()
          << "\nlater=" << later_text(engine) << '\n';
  for (Bytes& in : memory.in) std::fill(in.begin(), in.end(), kMark);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const bool marked = std::all_of(memory.in.begin(), memory.in.end(),
                                  [](const Bytes& in) { return all_are(in, kMark); });
  verdict << "outputs=" << (marked ? "left alone" : "written after the failure") << '\n';
  return verdict.str();
}

int run(const Settings& settings) {
  Memory memory;  // outlives the engine
  for (const std::size_t size : settings.bytes) {
    memory.out.emplace_back(size);
    memory.in.emplace_back(size);
  }
  ronde::Engine engine;
  const std::string mine = settings.folder + "/rank-" + std::to_string(engine.rank());
  write_file(mine + ".pid", std::to_string(::getpid()) + "\n");
  try {
    for (std::uint64_t i = 0; settings.iterations == 0 || i < settings.iterations; ++i) {
      iterate(settings, engine, memory, i + 1);
    }
    engine.close();
    write_file(mine + ".verdict", "status=done\n");
    return 0;
  } catch (const ronde::Error& error) {
    const std::string verdict = verdict_of(engine, memory, error);
    try {
      engine.close();
    } catch (const ronde::Error&) {  // it has failed
    }
    write_file(mine + ".verdict", verdict);
    return kExitFailedJob;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "message_worker: %s\n", error.what());
    return 1;
  }
}
