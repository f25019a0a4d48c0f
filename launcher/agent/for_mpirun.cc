// SPDX-License-Identifier: Apache-2.0
// What mpirun starts in a rank's place: it knows how the rank has ended, which mpirun does not say.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "base/wire/unix_socket.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/messages.h"
#include "launcher/agent/ranks.h"
#include "launcher/host_files.h"
#include "launcher/job/outcome.h"

namespace ronde::launcher {

namespace {

std::int32_t rank_of_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    const char* const text = std::getenv(name);
    const auto rank = text == nullptr ? std::nullopt : base::parse_number<std::int32_t>(text);
    if (rank) return *rank;
  }
  return 0;
}

// Nothing where the agent is on another host: then mpirun's exit code stands.
std::optional<Channel> line_to_agent(const std::string& job) {
  const base::SteadyClock clock;
  auto socket = base::connect_abstract("mpi-" + job, clock, clock.now());
  if (!socket.ok() || !base::same_user(*socket)) return std::nullopt;
  base::FileDescriptor out(::fcntl(socket->get(), F_DUPFD_CLOEXEC, 3));
  return Channel(std::move(*socket), std::move(out));
}

void say(std::optional<Channel>& agent, const AgentMessage& message) {
  if (agent) agent->send(encode(message));
}

// Waits for the program, and passes on what this process is sent instead of it.
int wait_for(pid_t program, const sigset_t& signals) {
  for (;;) {
    const int signal = ::sigwaitinfo(&signals, nullptr);
    if (signal > 0 && signal != SIGCHLD) ::kill(program, signal);
    int status = 0;
    if (::waitpid(program, &status, WNOHANG) == program) return status;
  }
}

}  // namespace

int run_for_mpirun(const std::string& job, const std::string& output_dir,
                   const std::string& start_line, std::vector<std::string> program) {
  std::optional<Channel> agent = line_to_agent(job);
  const std::int32_t rank = rank_of_mpi();
  for (const bool error : {false, true}) {
    if (output_dir.empty()) break;
    const auto file = open_output(output_dir, rank, error, start_line);
    if (file.valid() && ::dup2(file.get(), error ? STDERR_FILENO : STDOUT_FILENO) >= 0) continue;
    std::cerr << "ronderun: --output-dir " << output_dir << ": " << std::strerror(errno) << '\n';
    return kExitUsage;
  }
  sigset_t signals;
  sigset_t before;
  sigemptyset(&signals);
  for (const int one : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT}) {
    sigaddset(&signals, one);
  }
  ::sigprocmask(SIG_BLOCK, &signals, &before);
  std::vector<char*> words;
  words.reserve(program.size() + 1);
  for (std::string& word : program) words.push_back(word.data());
  words.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return EXIT_FAILURE;
  if (pid == 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    say(agent, Started{rank, ::getpid()});  // before the program can do anything
    if (::getppid() == parent) ::execvp(words.front(), words.data());
    const int failed = errno;
    std::cerr << "ronderun: " << program.front() << ": " << std::strerror(failed) << '\n';
    ::_exit(failed == ENOENT ? kExitNotFound : kExitNotExecutable);
  }
  const int status = wait_for(pid, signals);
  const std::string file = output_dir + "/rank." + std::to_string(rank) + ".err";
  say(agent, Ended{rank, status, output_dir.empty() ? "" : last_line_of(file)});
  if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
  // mpirun says by which signal it was.
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  std::signal(WTERMSIG(status), SIG_DFL);
  ::raise(WTERMSIG(status));
  return exit_code_of(status);
}

}  // namespace ronde::launcher
