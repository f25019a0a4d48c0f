// SPDX-License-Identifier: Apache-2.0
// The ranks of one host, as processes: how they start, print, read, and end.
#pragma once

#include <poll.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"
#include "launcher/agent/messages.h"
#include "launcher/lines.h"

namespace ronde::launcher {

// Each is the first of a process group of its own, and is killed by the kernel as soon as the
// process that has started it ends.
//
// Thread safety: none; for programs of one thread.
class Ranks {
 public:
  // Starts them all. The error has the exit code of a shell where the program is the reason.
  struct Failure {
    int exit_code = 0;
    std::string text;
  };
  Failure start(const StartRanks& plan);
  [[nodiscard]] std::vector<Started> started() const;

  // Takes what has ended, and the last that these have printed.
  std::vector<Ended> reap(std::vector<Printed>& outputs);
  [[nodiscard]] bool any_left() const;
  void signal(int number) const;
  // Ends what is in their groups, and what has been left to this process, at once.
  void kill() const;

  // Reads what they have printed, at most `most` bytes of each; nothing where `most` is 0.
  void add_to(std::vector<pollfd>& entries, bool output) const;
  std::vector<Printed> read(const std::vector<pollfd>& entries, std::size_t most);
  // What is left in the pipes, once nobody writes there any more.
  void drain(std::vector<Printed>& outputs);
  // For the standard input of the first one; `last`: there is no more. True: all was taken.
  void feed(const std::string& bytes, bool last);
  bool write_input();
  // Whether MPI in one of them has started by itself, as a job of one; looks at a few of them.
  [[nodiscard]] bool has_lonely_mpi();

 private:
  struct One {
    std::int32_t rank = 0;
    pid_t pid = 0;
    bool ended = false;
    base::FileDescriptor out{};
    base::FileDescriptor err{};
    LastLine last{};
  };
  Failure start_one(const StartRanks& plan, std::int32_t index);
  static void read_all(One& one, std::vector<Printed>& outputs);
  static bool read_one(One& one, bool error, std::size_t most, std::vector<Printed>& outputs);

  std::vector<One> ranks_;
  std::string output_dir_;
  base::FileDescriptor input_;
  std::string pending_input_;
  bool input_ends_ = false;
  rlimit files_{};  // of descriptors, as this process had it
  std::size_t looked_at_ = 0;
};

// Opens the file of a rank in the folder of --output-dir, in which earlier starts, those of another
// ronderun too, keep what they have printed. The line says where each start begins; an empty
// rank.N.out stays as it is. errno where it cannot.
[[nodiscard]] base::FileDescriptor open_output(const std::string& folder, std::int32_t rank,
                                               bool error, const std::string& line);

// The children of this process, those that it has inherited among them.
[[nodiscard]] std::vector<pid_t> children_of_this_process();
[[nodiscard]] std::string name_of(pid_t process);
// Kills them, but for `strangers`, and what they leave behind, until there are none; for a few
// seconds at most.
void kill_children(const std::vector<pid_t>& strangers, const base::Clock& clock);

}  // namespace ronde::launcher
