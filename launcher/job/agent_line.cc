// SPDX-License-Identifier: Apache-2.0
// The processes behind the lines.
#include "launcher/job/agent_line.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "launcher/agent/agent.h"
#include "launcher/job/outcome.h"
#include "launcher/shell.h"

namespace ronde::launcher {

using base::FileDescriptor;
using base::Result;
using base::Status;

namespace {

// A terminal's Ctrl-C, and its hanging up, are not for what carries a line.
void leave_terminal() { ::setsid(); }

Result<Channel> channel_of(FileDescriptor socket) {
  FileDescriptor out(::fcntl(socket.get(), F_DUPFD_CLOEXEC, 3));
  if (!out.valid()) return Status::system("could not copy a descriptor", errno);
  return Channel(std::move(socket), std::move(out));
}

// In the child. It keeps the line alone: who reads ronderun's output must see its end with
// ronderun's, and so must other lines.
[[noreturn]] void become_agent(const FileDescriptor& line) {
  constexpr int kLine = 3;
  leave_terminal();
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < kLine; ++fd) ::dup2(null, fd);
  const int copy = ::fcntl(line.get(), F_DUPFD_CLOEXEC, kLine + 1);
  ::dup3(copy, kLine, O_CLOEXEC);
  ::close_range(kLine + 1, ~0U, 0);
  auto channel = channel_of(FileDescriptor(kLine));
  std::_Exit(channel.ok() ? run_agent(std::move(*channel), false) : EXIT_FAILURE);
}

}  // namespace

std::vector<std::string> command_for(const std::vector<std::string>& command,
                                     const std::string& host, const std::string& program) {
  static constexpr std::string_view kHost = "{host}";
  std::vector<std::string> words = command;
  bool placed = false;
  for (std::string& word : words) {
    const std::size_t at = word.find(kHost);
    if (at == std::string::npos) continue;
    word.replace(at, kHost.size(), host);
    placed = true;
  }
  if (!placed) words.push_back(host);
  // ssh has a shell there read its words.
  const std::string name = command.front().substr(command.front().rfind('/') + 1);
  words.push_back(name == "ssh" || name == "rsh" ? shell_quoted(std::array{program}) : program);
  words.emplace_back(kAgentFlag);
  return words;
}

Result<AgentLine> AgentLine::here(const Signals& signals) {
  RONDE_ASSIGN_OR_RETURN(auto ends, Channel::make_pair());
  const pid_t pid = ::fork();
  if (pid < 0) return Status::system("could not start the agent of this host", errno);
  if (pid == 0) {
    signals.unblock_in_child();
    become_agent(ends.theirs);
  }
  ends.theirs.reset();
  RONDE_ASSIGN_OR_RETURN(auto channel, channel_of(std::move(ends.ours)));
  return AgentLine(std::move(channel), pid, FileDescriptor(), true);
}

Result<AgentLine> AgentLine::there(const std::vector<std::string>& command, const std::string& host,
                                   const std::string& program, const Signals& signals) {
  std::vector<std::string> texts = command_for(command, host, program);
  std::vector<char*> words;
  words.reserve(texts.size() + 1);
  for (std::string& text : texts) words.push_back(text.data());
  words.push_back(nullptr);
  RONDE_ASSIGN_OR_RETURN(auto ends, Channel::make_pair());
  std::array<int, 2> errors{};
  if (::pipe2(errors.data(), O_CLOEXEC) != 0) return Status::system("could not make a pipe", errno);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Status::system("could not start " + texts.front(), errno);
  if (pid == 0) {
    leave_terminal();
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(EXIT_FAILURE);
    ::dup2(ends.theirs.get(), STDIN_FILENO);
    ::dup2(ends.theirs.get(), STDOUT_FILENO);
    ::dup2(errors[1], STDERR_FILENO);
    signals.unblock_in_child();
    ::execvp(words.front(), words.data());
    const std::string text = texts.front() + ": " + std::strerror(errno) + "\n";
    (void)!::write(STDERR_FILENO, text.data(), text.size());
    ::_exit(kExitNotFound);
  }
  ends.theirs.reset();
  ::close(errors[1]);
  ::fcntl(errors[0], F_SETFL, O_NONBLOCK);
  RONDE_ASSIGN_OR_RETURN(auto channel, channel_of(std::move(ends.ours)));
  return AgentLine(std::move(channel), pid, FileDescriptor(errors[0]), false);
}

AgentLine::~AgentLine() {
  if (pid_.value <= 0) return;
  ::kill(pid_.value, SIGKILL);
  ::waitpid(pid_.value, nullptr, 0);
}

void AgentLine::add_to(std::vector<pollfd>& entries) const {
  if (errors_.valid()) entries.push_back({errors_.get(), POLLIN, 0});
  if (channel_.closed()) return;
  entries.push_back({channel_.in(), POLLIN, 0});
  if (channel_.backlogged()) entries.push_back({channel_.out(), POLLOUT, 0});
}

// What the command says last is read after its end has been seen, so that nothing of it is missed.
void AgentLine::serve(Output& output) {
  channel_.flush();
  const bool was_marked = marked_;
  std::string noise;
  if (!marked_) marked_ = channel_.skip_to(kAgentMark, noise);
  if (marked_ && !channel_.closed()) channel_.read();
  std::array<char, 4096> bytes{};
  while (errors_.valid()) {
    const ssize_t size = ::read(errors_.get(), bytes.data(), bytes.size());
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (size <= 0) {
      errors_.reset();
      break;
    }
    const std::string_view text(bytes.data(), static_cast<std::size_t>(size));
    words_.take(text);
    if (was_marked) output.add(true, text);
  }
  if (words_.text().empty()) words_.take(noise);
}

Result<std::optional<AgentMessage>> AgentLine::next() {
  RONDE_ASSIGN_OR_RETURN(const auto frame, channel_.next());
  if (!frame) return std::optional<AgentMessage>();
  RONDE_ASSIGN_OR_RETURN(auto message, decode_agent_message(*frame));
  return std::optional(std::move(message));
}

}  // namespace ronde::launcher
