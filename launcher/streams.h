// SPDX-License-Identifier: Apache-2.0
// What the ranks and mpirun print on its way to ronderun's own output: the ranks' lines with a tag,
// mpirun's boxes of text left out.
#pragma once

#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/lines.h"
#include "launcher/mpirun_voice.h"
#include "launcher/output.h"

namespace ronde::launcher {

// Owns its descriptors, and the folder of the pipes, which it removes. It never blocks: what does
// not fit into the output waits there, and nothing more is read meanwhile.
//
// Thread safety: none.
class Streams {
 public:
  // `output` must live longer.
  explicit Streams(Output& output) : output_(output) {}
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // Has mpirun's standard error read.
  [[nodiscard]] base::Status read_mpirun();
  // Makes a folder with a pipe for each stream of `ranks` ranks: rank.N.out and rank.N.err.
  [[nodiscard]] base::Status tag_ranks(std::int64_t ranks);

  // The standard error for mpirun, or -1; the parent closes it once mpirun has it.
  [[nodiscard]] int error_end() const { return error_end_; }
  void close_error_end();
  // Where the pipes lie; empty without tag_ranks().
  [[nodiscard]] const std::string& folder() const { return folder_; }

  // Adds what to wait for, and looks at what poll() has said about it.
  void add_to(std::vector<pollfd>& entries) const;
  void serve(const std::vector<pollfd>& entries);
  // Prints a line of ronderun's own, without waiting.
  void say(const std::string& text) { output_.say(text); }
  // Brings over what is still in the pipes, once mpirun has ended.
  void finish(const base::Clock& clock);

  [[nodiscard]] const Cause& cause() const { return voice_.cause(); }
  // The last line of the job on the standard error, without mpirun's own and without its tag; empty
  // where ronderun does not read it.
  [[nodiscard]] std::string last_line() const;
  // Tells whether the reader of ronderun's output went away while something was printed.
  [[nodiscard]] bool reader_gone() const;

 private:
  struct Source {
    int fd;
    bool to_error;  // where it goes
    bool mpirun;    // through voice_, not the tagger
    LineTagger tagger;
  };
  // Returns false when there is nothing more for now.
  bool read_from(Source& source);
  void show(const Source& source, const std::string& bytes);
  base::Status add_pipe(std::int64_t rank, bool error);

  Output& output_;
  std::string folder_;
  std::vector<std::string> files_;
  std::vector<Source> sources_;
  int error_end_ = -1;
  MpirunVoice voice_;
  LastLine last_line_;
};

}  // namespace ronde::launcher
