// SPDX-License-Identifier: Apache-2.0
// A rank that starts a helper, which opens an engine too: child_worker HOW [COMMAND...]
//   exec   the helper is this program, started anew
//   fork   it is a copy of the rank
//   run    it is COMMAND, in rank 0 alone
// Every rank prints "rank R of N done: helper's code C" at its end.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <ronde/ronde.hpp>
#include <string>
#include <string_view>

namespace {

int open_and_tell() {
  try {
    const ronde::Engine engine;
    std::printf("helper: rank %d of %d\n", engine.rank(), engine.size());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "helper: %s\n", error.what());
    return 3;
  }
}

int code_of_helper(std::string_view how, const ronde::Engine& engine, char** arguments) {
  if (how == "run" && engine.rank() != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    if (how == "fork") {
      const int code = open_and_tell();
      std::fflush(nullptr);
      _exit(code);
    }
    char* const self[] = {arguments[0], const_cast<char*>("helper"), nullptr};
    execvp(how == "run" ? arguments[2] : "/proc/self/exe", how == "run" ? arguments + 2 : self);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int main(int count, char** arguments) try {
  const std::string how = count > 1 ? arguments[1] : "helper";
  if (how == "helper") return open_and_tell();
  ronde::Engine engine;
  engine.barrier_blocking("before");
  const int code = code_of_helper(how, engine, arguments);
  engine.barrier_blocking("after");
  const int rank = engine.rank();
  const int size = engine.size();
  engine.close();
  std::printf("rank %d of %d done: helper's code %d\n", rank, size, code);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "rank: %s\n", error.what());
  return 1;
}
