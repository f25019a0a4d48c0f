// SPDX-License-Identifier: Apache-2.0
// The engine: one runtime in one process. Takes tensors from any thread, and finishes their works.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/process/fork_mark.h"
#include "base/status.h"
#include "runtime/drive/agent.h"
#include "runtime/drive/agent_runner.h"
#include "runtime/engine/rank_agent.h"
#include "runtime/job/job.h"
#include "runtime/lines/line_memory.h"
#include "runtime/lines/line_words.h"
#include "runtime/lines/quick_calls.h"
#include "runtime/messages/message.h"
#include "runtime/tensors/board_buffer.h"
#include "runtime/tensors/lateness.h"
#include "runtime/tensors/submission.h"
#include "runtime/tensors/tensor_table.h"
#include "runtime/tensors/work.h"
#include "runtime/timeline/trace.h"

namespace ronde::runtime {

// What an engine has done since it was opened.
struct Statistics {
  std::uint64_t batches = 0;
  std::uint64_t tensors = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t control_bytes = 0;
  std::uint64_t full_requests = 0;
  std::uint64_t planned_requests = 0;
  std::uint64_t background_wakes = 0;
  std::uint64_t in_place_bytes = 0;
  base::Nanoseconds execution{0};  // the time in which a batch was in progress
};

// Where operations need MPI and the program has started it below MPI_THREAD_SERIALIZED, the engine
// is caller-driven: it has no background thread, and makes progress only inside wait(), poll() and
// close(); then only the thread that opened it may wait and close.
//
// It owns the job, the agent and the background thread. It touches the memory of a tensor from
// submit() until the work is done and never afterwards, whatever happens. In a forked child every
// function that can fail returns kUnsupported, and nothing is touched.
//
// A process set is an engine inside that of the job, which it keeps; closing the job closes it.
//
// Thread safety: every function may be called from any thread; close() once, as the last call.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  using WorkPtr = std::shared_ptr<Work>;
  using OpenJob =
      std::function<base::Result<std::unique_ptr<Job>>(const base::Config&, const base::Clock&)>;

  // Reads the settings from `environment` ("NAME=value" lines), joins the job and waits until every
  // rank has done so, at most RONDE_START_TIMEOUT_SECONDS.
  static base::Result<std::shared_ptr<Engine>> open(const OpenJob& open_job,
                                                    const std::vector<std::string>& environment,
                                                    std::shared_ptr<const base::Clock> clock);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] std::int32_t rank() const { return rank_; }
  [[nodiscard]] std::int32_t size() const { return size_; }
  [[nodiscard]] std::int32_t local_rank() const { return local_rank_; }
  [[nodiscard]] std::int32_t local_size() const { return local_size_; }
  [[nodiscard]] const base::Clock& clock() const { return *clock_; }

  // Opens the process set of these ranks, in whatever order, of this engine: an engine in which
  // they are numbered anew, ascending. Every one of them calls it, and waits for the others, until
  // the first of their deadlines at most (0: RONDE_STALL_FAILURE_SECONDS); on other ranks it
  // returns nullptr at once. The set makes progress by itself; thread, descriptors, memory of
  // Buffers and the failure are the job's. place: of the caller, "file:line" or empty.
  base::Result<std::shared_ptr<Engine>> subset(std::vector<std::int32_t> ranks,
                                               const std::string& name,
                                               const std::string& place = {},
                                               base::Nanoseconds deadline = {});
  // Every rank of this engine calls it: those of one color get a process set, "<name>.<color>", and
  // those of a negative one nullptr.
  base::Result<std::shared_ptr<Engine>> split(std::int64_t color, const std::string& name,
                                              const std::string& place = {});
  // The ranks of the process set in the numbers of the job; empty if this is none.
  [[nodiscard]] const std::vector<std::int32_t>& ranks_of_job() const;

  // Puts a tensor in flight and returns at once. With an error no work exists, and the memory is
  // the caller's again.
  base::Result<WorkPtr> submit(Submission submission);

  // The same for a caller who has nothing else to do until it is done, and wants no work. Small
  // operations meet the others' faster so (quick_calls.h).
  base::Status run(Submission submission);

  // This rank has no more to submit for now: it takes part with neutral elements in what the others
  // do, until all have joined. The work ends then, and has the last of them (last_joined). It waits
  // for as long as the others go on. With will_wait this thread calls wait() next.
  base::Result<WorkPtr> join(bool will_wait);
  // Puts a message to or from another rank in flight and returns at once; the memory is the
  // engine's until the work is done.
  base::Result<WorkPtr> send(const MessageRequest& request);
  base::Result<WorkPtr> receive(const MessageRequest& request);

  // Allocates memory on the board: tensors that live there on every rank are reduced in place. The
  // caller owns it, and it may outlive the engine. After a failure nothing is allocated any more,
  // because other ranks may still write into memory that was released.
  base::Result<std::unique_ptr<BoardBuffer>> allocate(base::Bytes bytes);
  // The same, but memory of this process where the board has no room or the engine is over.
  base::Result<std::unique_ptr<BoardBuffer>> allocate_anywhere(base::Bytes bytes);

  // Waits until the work is done or clock() has reached `deadline`, helping meanwhile; true when it
  // is done.
  base::Result<bool> wait_until(Work& work, base::Instant deadline);
  // The same for a caller that goes on to wait until the work is done, and looks at something else
  // in between: it counts as waiting all the time.
  base::Result<bool> wait_slice(Work& work, base::Instant deadline);
  // Whether the work is done; never blocks. In a caller-driven engine it takes a step, in the
  // thread that may drive: what asks again and again there makes progress.
  [[nodiscard]] bool poll(Work& work);
  // Waits until the work is done, and returns its result. A work that is not done at the deadline,
  // by which (without one) the stall checks should have ended it, fails the job.
  base::Status wait(Work& work, std::optional<base::Instant> deadline = {});

  // Has a stream of a device wait for a work of that device: what the caller puts into `stream`
  // after this call begins when the work is done. The call returns as soon as the device has the
  // batch in a stream, helping meanwhile, or, where tensors pass through host memory, when the work
  // is done. The work may fail after this call has returned ok; wait(work) returns that error.
  base::Status let_stream_wait(Work& work, void* stream);

  // For whoever frees the work's memory next, and cannot go on with an error: waits until nothing
  // touches that memory any more. It returns at once in a forked child, and sleeps where the thread
  // may not drive. A work that is not done after `grace`, or, without one, after the grace that the
  // settings give to exceptions, fails the job.
  void settle(Work& work, std::optional<base::Nanoseconds> grace);

  // Finishes the works that can be finished and fails the rest, and leaves the job. Returns an
  // error when it failed works, or when some had failed and nobody has asked for their results.
  // Takes at most RONDE_SHUTDOWN_TIMEOUT_SECONDS and a few seconds. In a thread that may not drive
  // it fails the job, so that the other ranks are notified.
  base::Status close();
  // Called when the process is about to end: closes, and fails the job if anything is in flight.
  void close_at_exit();

  // The result of a work that is done, for a caller who asks for it.
  static base::Status result(Work& work);

  [[nodiscard]] Statistics statistics();
  // Which ranks the others have waited for, the worst first: on rank 0, to which all arrivals come;
  // empty elsewhere. The names are the engine's.
  [[nodiscard]] std::vector<LateTensorOfRank> late() { return agent_.late().read(); }

  // The table of ranks (rank_table.h) and, where there is one, the device; owned by the engine. It
  // asks no other rank.
  base::Result<const char*> describe();

  // ---- the timeline (runtime/timeline/) ----
  // Records what this rank does from now on in the trace file of that path, into which the other
  // ranks of the host write too, those that start it; other hosts add their number to the path.
  base::Status start_timeline(const std::string& path, bool cycles);
  // Ends it; ok where there is none. The error if the file could not be written.
  base::Status stop_timeline();
  // Marks this moment, or the beginning or the end of something in this thread; nothing happens
  // while there is no timeline.
  base::Status mark(MarkKind kind, const std::string& name);

 private:
  friend class Prepared;
  friend class OpenLine;
  // The engine of which a process set is a part.
  struct Within {
    std::shared_ptr<Engine> job;
    SetIdentity identity;
  };
  Engine(base::Config config, std::shared_ptr<const base::Clock> clock, std::unique_ptr<Job> job,
         std::unique_ptr<Within> within = nullptr);

  using BeginMessage = base::Result<WorkPtr> (Messages::*)(const MessageRequest&);
  bool attend(Work& work, bool spins);
  // What the threads of this process wait for, in sets too.
  Submitters& waits() { return within_ == nullptr ? agent_.threads() : within_->job->waits(); }
  base::Result<WorkPtr> begin_message(const MessageRequest& request, BeginMessage begin);
  template <typename Announce>
  void announce_and_learn(Work& work, base::Instant submitted, WaitingHabit* habit,
                          const Announce& announce);
  void learn(Work& work, bool waits);
  base::Status enter(base::Instant deadline);
  base::Status wait_for_ranks(base::Instant deadline);
  base::Status watch_others();
  base::Status tune(base::Instant deadline);
  [[nodiscard]] base::Status not_tuned() const;
  base::Status start_device(base::Instant deadline);
  base::Status compare_clocks(base::Instant deadline);
  void start_timeline_of_settings();
  // When the stall checks have ended what has begun now, with a deadline of its own or 0.
  [[nodiscard]] base::Instant verdict_deadline(base::Nanoseconds own) const;
  base::Status check_waiting(const Work& work, void* stream);
  base::Status put_into_stream(Work& work, void* stream, base::Instant deadline);
  base::Result<WorkPtr> try_submit(Submission&& submission);
  base::Result<std::shared_ptr<Engine>> open_set(SetAnnouncement asked);
  base::Result<std::shared_ptr<Engine>> make_set(const SetDecision& decision);
  base::Status await_answer(SetOpening& opening, base::Nanoseconds deadline);
  base::Status open_sets_of_settings();
  base::Result<std::shared_ptr<Engine>> take_opened(const std::string& name,
                                                    const std::vector<std::int32_t>& ranks);
  void close_sets();
  base::Status pass_on_to_the_end();
  void end_set();
  base::Result<std::int64_t> make_large_slots(std::int32_t number,
                                              const collectives::BoardGeometry& geometry);
  base::Result<std::span<std::byte>> allocate_channel(base::Bytes bytes);
  void announce_end();
  void announce_end_of(std::int32_t number, const std::string& name);
  base::Result<std::unique_ptr<collectives::Transport>> transport_of_set(const SetIdentity& set);
  std::unique_ptr<SetLinks> links_of_set(const SetIdentity& set, const base::JobShape& shape,
                                         std::int32_t host);
  [[nodiscard]] std::vector<std::shared_ptr<Engine>> open_sets();
  base::Status usable() const;
  // For calls by lines, which pass neither the table nor the agent.
  base::Status line_usable();
  // Their errors, in a process set with its name, and with the ranks of the job.
  base::Status told(base::Status status);
  LineHost line_host();
  // Whether what meets in lines has the bits of ordinary operations. Where the settings name an
  // algorithm, each rank counts as a host.
  [[nodiscard]] bool sums_in_rank_order() const {
    return job_->shape().hosts() == 1 && config_.algorithm == "auto";
  }
  // Collective: lines for calls of at most so many bytes; nothing where there is no room for them,
  // or no board that all ranks share.
  base::Result<std::optional<collectives::Lines>> make_lines(const std::string& name,
                                                             std::size_t most);
  // Whether this thread may drive the agent: in a caller-driven engine only the one that opened it.
  base::Status may_drive() const;
  [[nodiscard]] bool is_driver() const;
  bool outlast(Work& work, base::Instant deadline);
  bool give_up(const base::Status& why);
  [[nodiscard]] std::string not_settled(const Work& work, base::Nanoseconds patience,
                                        bool unwinding);
  void await_none(const std::atomic<std::int32_t>& threads) const;
  base::Status leave();
  void give_messages_up();
  base::Status await_failure();
  base::Status fail_what_is_left(bool departed);
  [[nodiscard]] std::optional<base::Status> trouble_at_start() const;

  const std::unique_ptr<Within> within_;  // of a process set
  const base::Config config_;
  const std::shared_ptr<const base::Clock> clock_;
  const base::ForkMark process_;  // in a forked child the engine is inert
  std::unique_ptr<Job> job_;
  const std::int32_t rank_;
  const std::int32_t size_;
  const std::int32_t local_rank_;
  const std::int32_t local_size_;
  const std::shared_ptr<BoardMemory> memory_;
  const base::Bytes small_bytes_;  // up to this size a tensor on the board is not reduced in place
  base::Log log_;
  std::shared_ptr<collectives::Device> device_;
  std::string no_device_;    // where device_ is nullptr: why
  std::string device_line_;  // elsewhere: which it is, for people
  const std::thread::id opener_;
  // The reason why there is no background thread; empty: there is one.
  const std::string caller_driven_;
  const bool checks_finite_;
  TensorTable table_;
  QuickCalls quick_;
  RankAgent agent_;
  const std::unique_ptr<AgentRunner> own_runner_;  // a process set has the job's
  AgentRunner& runner_;
  LineMemory line_memory_;
  std::vector<PeerWatch> peers_;
  std::atomic<std::int32_t> waiting_threads_{0};
  std::atomic<std::int32_t> submitting_threads_{0};  // those whose tensor is not announced yet
  std::atomic<bool> open_{false};
  std::atomic<bool> told_of_plain_memory_{false};
  base::Mutex describing_;
  std::string description_ RONDE_GUARDED_BY(describing_);  // made when it is first asked for
  std::atomic<bool> closed_at_exit_{false};                // or with the job
  base::Mutex sets_mutex_;
  std::vector<std::weak_ptr<Engine>> sets_ RONDE_GUARDED_BY(sets_mutex_);
  // Those of the settings, until the program asks for them; closing the engine empties it.
  struct Opened {
    std::vector<std::int32_t> ranks;
    std::shared_ptr<Engine> set;  // nullptr on a rank outside
  };
  std::map<std::string, Opened> opened_ RONDE_GUARDED_BY(sets_mutex_);
};

}  // namespace ronde::runtime
