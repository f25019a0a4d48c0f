// SPDX-License-Identifier: Apache-2.0
// Starting, reading and ending processes.
#include "launcher/agent/ranks.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "base/numbers.h"
#include "base/process/cores.h"
#include "base/process/environment.h"
#include "base/text.h"
#include "launcher/agent/relays.h"
#include "launcher/host_files.h"
#include "launcher/job/outcome.h"

namespace ronde::launcher {

using base::FileDescriptor;

namespace {

// The environment of a rank: what the plan has goes before that of this process, and who the rank
// is before both.
std::vector<std::string> environment_of(const StartRanks& plan, std::int32_t index) {
  std::map<std::string, std::string> lines;
  const auto add = [&](const std::vector<std::string>& more) {
    for (const std::string& line : more) lines[line.substr(0, line.find('='))] = line;
  };
  add(base::process_environment());
  add(plan.environment);
  if (!plan.mpirun) {
    if (!lines.contains("RONDE_MEET")) add({"RONDE_MEET=unix:" + meeting_of(plan.job)});
    add({"RONDE_RANK=" + std::to_string(plan.first + index),
         "RONDE_SIZE=" + std::to_string(plan.size),
         "RONDE_LOCAL_RANK=" + std::to_string(plan.local_first + index),
         "RONDE_LOCAL_SIZE=" + std::to_string(plan.local_size)});
  }
  std::vector<std::string> all;
  all.reserve(lines.size());
  for (auto& [name, line] : lines) all.push_back(std::move(line));
  return all;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  result.reserve(words.size() + 1);
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

// The processors of a rank: an equal part of the cores, or of the nodes of memory; none: all.
std::vector<int> processors_for(const StartRanks& plan, std::int32_t index) {
  auto parts = plan.binding == "core" ? processors_of_cores() : processors_of_nodes();
  const bool spread = parts.size() > 1 && std::cmp_greater_equal(plan.count, parts.size());
  if (plan.binding == "none" || (plan.binding == "auto" && !spread)) return {};
  const auto all = std::ssize(parts);
  const auto count = static_cast<std::ptrdiff_t>(plan.count);
  std::ptrdiff_t from = index * all / count;
  const std::ptrdiff_t to = std::max(from + 1, (index + 1) * all / count);
  std::vector<int> processors;
  for (; from < to && from < all; ++from) {
    const auto& part = parts[static_cast<std::size_t>(from)];
    processors.insert(processors.end(), part.begin(), part.end());
  }
  return processors;
}

// What a child needs, made before it is forked.
struct Child {
  std::vector<char*> argv;
  std::vector<char*> environment;
  std::string program;
  std::array<cpu_set_t, 8> processors{};  // 8192 of them
  bool bound = false;
  std::array<int, 3> standard{};
  pid_t parent = 0;
  rlimit files{};
};

// In the child; returns only by failing, with an errno.
int become(const Child& child) {
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
  if (::getppid() != child.parent) return ESRCH;
  for (int fd = 0; fd < 3; ++fd) {
    if (::dup2(child.standard[static_cast<std::size_t>(fd)], fd) < 0) return errno;
  }
  if (child.bound &&
      ::sched_setaffinity(0, sizeof child.processors, child.processors.data()) != 0) {
    return errno;
  }
  ::setrlimit(RLIMIT_NOFILE, &child.files);
  for (const int one : {SIGPIPE, SIGCHLD, SIGTERM, SIGINT, SIGQUIT}) std::signal(one, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execvpe(child.program.c_str(), child.argv.data(), child.environment.data());
  return errno;
}

// Forks, and returns the errno of a child that could not become the program; 0: it has.
int fork_child(const Child& child, pid_t& pid) {
  std::array<int, 2> told{};  // exec itself closes it
  if (::pipe2(told.data(), O_CLOEXEC) != 0) return errno;
  pid = ::fork();
  if (pid == 0) {
    const int error = become(child);
    const ssize_t written = ::write(told[1], &error, sizeof error);
    ::_exit(written == sizeof error ? kExitNotFound : kExitNotExecutable);
  }
  int error = pid < 0 ? errno : 0;
  ::close(told[1]);
  if (pid > 0 && ::read(told[0], &error, sizeof error) == sizeof error) {
    ::waitpid(pid, nullptr, 0);
  }
  ::close(told[0]);
  return error;
}

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

void make_non_blocking(const FileDescriptor& fd) { ::fcntl(fd.get(), F_SETFL, O_NONBLOCK); }

}  // namespace

Ranks::Failure Ranks::start(const StartRanks& plan) {
  output_dir_ = plan.output_dir;
  // Two pipes a rank: the usual limit is that of 500 ranks. They keep their own.
  ::getrlimit(RLIMIT_NOFILE, &files_);
  rlimit most = files_;
  most.rlim_cur = most.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &most);
  for (std::int32_t index = 0; index < plan.count; ++index) {
    Failure failure = start_one(plan, index);
    if (failure.exit_code != 0) return failure;
  }
  return {};
}

Ranks::Failure Ranks::start_one(const StartRanks& plan, std::int32_t index) {
  One one{plan.first + index};
  const std::vector<std::string> own = environment_of(plan, index);
  Child child{pointers(plan.argv), pointers(own), plan.argv.front()};
  if (child.program.find('/') == std::string::npos) {
    const auto path =
        std::ranges::find_if(own, [](const auto& line) { return line.starts_with("PATH="); });
    const Program found =
        find_program(child.program, path == own.end() ? "/usr/bin:/bin" : path->substr(5));
    if (found.found == Found::kYes) child.program = found.path;
  }
  for (const int processor : processors_for(plan, index)) {
    CPU_SET_S(static_cast<std::size_t>(processor), sizeof child.processors,
              child.processors.data());
    child.bound = true;
  }
  Pipe in, out, err;
  const bool reads = one.rank == 0 || plan.mpirun;
  if (reads) in = make_pipe();
  if (!in.read.valid()) in.read = FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (output_dir_.empty()) {
    out = make_pipe();
    err = make_pipe();
  } else {
    out.write = open_output(plan.output_dir, one.rank, false, plan.start_line);
    err.write = open_output(plan.output_dir, one.rank, true, plan.start_line);
  }
  child.standard = {in.read.get(), out.write.get(), err.write.get()};
  child.parent = ::getpid();
  child.files = files_;
  if (!in.read.valid() || !out.write.valid() || !err.write.valid()) {
    return {EXIT_FAILURE, "the pipes or files of rank " + std::to_string(one.rank) +
                              " could not be opened (" + std::strerror(errno) + ")"};
  }
  const int failed = fork_child(child, one.pid);
  if (failed != 0) {
    const int code = failed == ENOENT                        ? kExitNotFound
                     : failed == EACCES || failed == ENOEXEC ? kExitNotExecutable
                                                             : EXIT_FAILURE;
    return {code, (failed == EMFILE ? "rank " + std::to_string(one.rank) : plan.argv.front()) +
                      " could not be started: " + std::strerror(failed) +
                      (failed == EMFILE ? " (ulimit -n)" : "")};
  }
  for (FileDescriptor* const end : {&in.write, &out.read, &err.read}) {
    if (end->valid()) make_non_blocking(*end);
  }
  if (reads) input_ = std::move(in.write);
  one.out = std::move(out.read);
  one.err = std::move(err.read);
  ranks_.push_back(std::move(one));
  return {};
}

std::vector<Started> Ranks::started() const {
  std::vector<Started> all;
  all.reserve(ranks_.size());
  for (const One& one : ranks_) all.push_back({one.rank, one.pid});
  return all;
}

std::vector<Ended> Ranks::reap(std::vector<Printed>& outputs) {
  std::vector<Ended> all;
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto one = std::ranges::find(ranks_, pid, &One::pid);
    if (one == ranks_.end() || one->ended) continue;  // what a rank has left behind
    one->ended = true;
    read_all(*one, outputs);
    std::string last = one->last.text();
    if (!output_dir_.empty()) {
      last = last_line_of(output_dir_ + "/rank." + std::to_string(one->rank) + ".err");
    }
    all.push_back({one->rank, status, std::move(last)});
  }
  return all;
}

void Ranks::drain(std::vector<Printed>& outputs) {
  for (One& one : ranks_) read_all(one, outputs);
}

void Ranks::read_all(One& one, std::vector<Printed>& outputs) {
  constexpr int kMostPieces = 64;  // what it has left behind may go on printing
  for (const bool error : {false, true}) {
    for (int piece = 0; piece < kMostPieces; ++piece) {
      if (!read_one(one, error, std::size_t{64} << 10U, outputs)) break;
    }
  }
}

bool Ranks::any_left() const {
  return std::ranges::any_of(ranks_, [](const One& one) { return !one.ended; });
}

void Ranks::signal(int number) const {
  for (const One& one : ranks_) {
    if (!one.ended) ::kill(one.pid, number);
  }
}

void Ranks::kill() const {
  for (const One& one : ranks_) {
    if (!one.ended) ::kill(-one.pid, SIGKILL);
  }
  for (const pid_t child : children_of_this_process()) ::kill(child, SIGKILL);
}

void Ranks::add_to(std::vector<pollfd>& entries, bool output) const {
  if (input_.valid() && !pending_input_.empty()) entries.push_back({input_.get(), POLLOUT, 0});
  for (const One& one : ranks_) {
    if (output && one.out.valid()) entries.push_back({one.out.get(), POLLIN, 0});
    if (output && one.err.valid()) entries.push_back({one.err.get(), POLLIN, 0});
  }
}

bool Ranks::read_one(One& one, bool error, std::size_t most, std::vector<Printed>& outputs) {
  FileDescriptor& fd = error ? one.err : one.out;
  if (!fd.valid()) return false;
  std::string bytes(most, '\0');
  const ssize_t size = ::read(fd.get(), bytes.data(), bytes.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (size <= 0) {
    fd.reset();
    return false;
  }
  bytes.resize(static_cast<std::size_t>(size));
  if (error) one.last.take(bytes);
  outputs.push_back({one.rank, error, std::move(bytes)});
  return true;
}

std::vector<Printed> Ranks::read(const std::vector<pollfd>& entries, std::size_t most) {
  std::vector<Printed> outputs;
  for (const pollfd& entry : entries) {
    if (entry.revents == 0 || most == 0) continue;
    for (One& one : ranks_) {
      if (one.out.valid() && one.out.get() == entry.fd) read_one(one, false, most, outputs);
      if (one.err.valid() && one.err.get() == entry.fd) read_one(one, true, most, outputs);
    }
  }
  return outputs;
}

void Ranks::feed(const std::string& bytes, bool last) {
  pending_input_ += bytes;
  input_ends_ = input_ends_ || last;
}

bool Ranks::write_input() {
  while (input_.valid() && !pending_input_.empty()) {
    const ssize_t size = ::write(input_.get(), pending_input_.data(), pending_input_.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return false;
    if (size < 0) input_.reset();  // it reads no more
    pending_input_.erase(0, size < 0 ? std::string::npos : static_cast<std::size_t>(size));
  }
  pending_input_.clear();
  if (input_ends_) input_.reset();
  return true;
}

// Open MPI keeps the part of it in memory by which it has found out how it was started; this one is
// for a process that nobody's mpirun has started.
bool Ranks::has_lonely_mpi() {
  constexpr std::size_t kAtOnce = 4;  // a large map takes a millisecond
  for (std::size_t i = 0; i < std::min(kAtOnce, ranks_.size()); ++i) {
    const One& one = ranks_[looked_at_++ % ranks_.size()];
    std::ifstream maps("/proc/" + std::to_string(one.pid) + "/maps");
    for (std::string line; !one.ended && std::getline(maps, line);) {
      if (line.find("mca_ess_singleton") != std::string::npos) return true;
    }
  }
  return false;
}

FileDescriptor open_output(const std::string& folder, std::int32_t rank, bool error,
                           const std::string& line) {
  std::error_code ignored;  // opening the file says it
  std::filesystem::create_directories(folder, ignored);
  const std::string path = folder + "/rank." + std::to_string(rank) + (error ? ".err" : ".out");
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file.valid() && (error || ::lseek(file.get(), 0, SEEK_END) > 0) &&
      ::write(file.get(), line.data(), line.size()) < 0) {
    file.reset();
  }
  return file;
}

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> found;
  std::ifstream file("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  for (std::string word; std::getline(file, word, ' ');) {
    if (const auto pid = base::parse_number<pid_t>(word)) found.push_back(*pid);
  }
  return found;
}

void kill_children(const std::vector<pid_t>& strangers, const base::Clock& clock) {
  const base::Instant deadline = clock.after(std::chrono::seconds(6));
  while (clock.now() < deadline) {
    bool any = false;
    for (const pid_t child : children_of_this_process()) {
      if (std::ranges::find(strangers, child) != strangers.end()) continue;
      any = true;
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, WNOHANG);
    }
    if (!any) return;
    ::poll(nullptr, 0, 1);
  }
}

std::string name_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace ronde::launcher
