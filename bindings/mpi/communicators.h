// SPDX-License-Identifier: Apache-2.0
// MPI_COMM_WORLD and its duplicates, with the engines behind them. Which calls those take over is
// decided by the order of the calls of a communicator alone, which MPI has all ranks keep: they
// decide alike.
#pragma once

#include <mpi.h>
#include <ronde/ronde.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "bindings/mpi/engine.h"
#include "bindings/mpi/fitting.h"

namespace ronde::mpi_allreduce {

// Has MPI look at its messages once: a rank that waits in an MPI call must do so, or sends of other
// calls would stand still meanwhile.
void let_mpi_progress();

// How long a wait goes on between two looks of MPI at its messages.
inline constexpr std::int64_t kWaitNanoseconds = 200'000;

// A reduction between MPI_Iallreduce and the call that waits for it. Thread safety: guarded by its
// lock.
struct InFlight {
  std::mutex lock;
  ronde_work* work = nullptr;
  MPI_Request request = MPI_REQUEST_NULL;
  bool done = false;
  int code = MPI_SUCCESS;  // once it is done
};

// The names of the blocking reductions of a communicator, whose calls meet by their order. A name
// that told what a call is would keep apart two that should meet and differ, and a number would be
// new for each call. So a name says what the calls before were, which all ranks agree on: those
// that differ then meet under one name, and a loop comes back to its names, whatever its calls are.
//
// Thread safety: none.
class History {
 public:
  // The ranks have made a call, all the same.
  void add(std::uint64_t call) {
    last_.at(next_) = call;
    next_ = (next_ + 1) % last_.size();
  }

  // Stands for the calls before, in eight digits.
  [[nodiscard]] std::string text() const {
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < last_.size(); ++i) {
      // The steps of a linear generator: all bits of a call move all higher ones.
      hash = (hash ^ last_.at((next_ + i) % last_.size())) * kFactor;
      hash ^= hash >> 29U;
    }
    std::string digits(8, '0');
    for (char& digit : digits) {
      digit = "0123456789abcdef"[hash >> 60U];
      hash <<= 4U;
    }
    return digits;
  }

 private:
  static constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;

  std::array<std::uint64_t, 4> last_{};
  std::size_t next_ = 0;
};

// What is known of one communicator.
//
// Thread safety: MPI has one thread at a time call collectives of a communicator.
class Communicator {
 public:
  explicit Communicator(MPI_Comm handle) : handle_(handle) {}
  // A duplicate of a communicator with an engine, which it joins in the first call that may wait.
  // MPI tells its handle later.
  explicit Communicator(Engine* engine) : engine_(engine) { want(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator() { drop_line(); }
  void has_handle(MPI_Comm handle) { handle_ = handle; }

  // Joins an engine, or opens one, once, together with all ranks: in a call that waits for all of
  // them anyway.
  void open();
  [[nodiscard]] bool is_open() const { return number_ >= 0 && engine_->is_open(); }
  // The engine, also before it is joined; nullptr where there is none.
  [[nodiscard]] Engine* engine() const { return engine_; }
  // MPI does a call that fits. After some of them the next call that may wait opens an engine: it
  // would not pay for a communicator that is used a few times.
  void count_call_of_mpi();
  [[nodiscard]] bool is_wanted() const { return wanted_; }
  // The communicator is being freed, by all ranks: it leaves its engine, which stays open.
  void leave();
  // It waits for an engine no longer: it has tried to open one, or it goes.
  void stop_wanting();

  // Whether the ranks meet in a line, where they see that they make equal calls, and where small
  // ones are done with that. Over several hosts they do not.
  [[nodiscard]] bool has_line() const { return line_ != nullptr && is_open(); }
  // The engine is about to close.
  void drop_line();

  // Where there is an engine an MPI_Allreduce that MPI does begins and ends with these. The first
  // waits for all ranks, and returns an error of MPI on all of them where their calls differ, since
  // another rank may be in the engine. `reduction` is nullptr for one that Ronde has not.
  int meet(int count, MPI_Datatype datatype, const Reduction* reduction);
  void end_call_of_mpi(int code);

  // MPI_Allreduce; MPI_Bcast and MPI_Barrier where there is a line. Return MPI's code.
  int allreduce(const void* send, void* receive, int count, const Reduction& reduction);
  int broadcast(void* buffer, int count, MPI_Datatype datatype, int root);
  int barrier();
  // Submits; the work is then waited for by requests.h.
  int submit(const void* send, void* receive, int count, const Reduction& reduction,
             InFlight& operation);
  // The operation in flight that was submitted so many calls ago that its name comes round; empty
  // where there is none.
  std::shared_ptr<InFlight>& next_slot();

 private:
  void want();
  void open_later();
  void join(int number);
  void take_line();
  void introduce() const;
  [[nodiscard]] int rank() const;
  [[nodiscard]] std::string prefix() const;
  // Memory of a reduction, and its shape.
  struct Tensor {
    const void* send;
    void* receive;
    std::span<const std::int64_t> shape;
  };
  ronde_status start(const std::string& name, const Tensor& tensor, const Reduction& reduction,
                     std::uint64_t flags, ronde_work** work, ronde_error** error);
  // The next blocking call, in the engine. Returns MPI's code.
  int reduce(const Tensor& tensor, const Reduction& reduction, std::uint64_t form);
  int broadcast_of_mpi(void* buffer, int count, MPI_Datatype datatype, int root);
  // Meets all ranks in the line. Returns MPI's code; `equal` says whether they make equal calls.
  int meet(const ronde_line_call& call, const char* name, bool& equal);
  // Has the engine say, to all ranks, that the calls differ: a reduction of Ronde, and another
  // call, whose form is a shape that nothing else has.
  int differ(int count, const Reduction& reduction);
  int differ(std::span<const std::int64_t> form, const std::string& what);
  int differ_in_mpi(int count, int element_bytes);
  int fail(ronde_error* error, const char* call);

  MPI_Comm handle_ = MPI_COMM_NULL;
  Engine* engine_ = nullptr;
  int number_ = -1;  // in the engine, once it is joined
  bool tried_ = false;
  bool wanted_ = false;
  int calls_of_mpi_ = 0;
  ronde_line* line_ = nullptr;
  // All ranks are in this call, and it is equal; until it ends well. One that is refused on this
  // rank alone is made again, while the others are in it.
  bool met_ = false;
  History history_;
  std::uint64_t started_ = 0;  // by submit()
  std::vector<std::shared_ptr<InFlight>> slots_;
};

// All communicators of this process, with what else MPI has once in a process.
//
// Thread safety: any thread.
class Communicators {
 public:
  // The one of this process, which is never destroyed: MPI may be finalised in a destructor.
  static Communicators& here();

  // The state of a duplicate of MPI_COMM_WORLD; nullptr for any other communicator. The other one
  // looks, and makes none.
  Communicator* of(MPI_Comm handle);
  Communicator* known(MPI_Comm handle);

  // MPI has begun, on all ranks: they compare the threshold, by which each decides alone.
  void agree();
  // From how many bytes on a call is taken over: RONDE_MPI_ALLREDUCE_BYTES, and its default for
  // blocking calls that meet in a line and for others.
  [[nodiscard]] std::int64_t threshold(bool by_line) const {
    return by_line ? threshold_ : threshold_without_line_;
  }
  [[nodiscard]] bool any_wanted() const { return wanted_.load(std::memory_order_relaxed) > 0; }
  [[nodiscard]] bool any_engine() const { return any_engine_.load(std::memory_order_relaxed); }
  void count_wanted(int change) { wanted_.fetch_add(change, std::memory_order_relaxed); }
  // True for the first caller alone.
  bool first_to_speak() { return !spoken_.exchange(true); }

  // The engine of this process, which stays open until MPI ends; nullptr where there is none.
  Engine* engine();
  // True where there is no engine, and no thread is about to open one, for rank 0 to ask. Then the
  // caller opens it, and ends with the second, with nullptr where it could not.
  bool may_open();
  Engine* has_opened(std::unique_ptr<Engine> engine);

  // The communicator is being freed. All ranks call it.
  void leave(const MPI_Comm* handle);
  // Closes the engine once all ranks are here: MPI ends.
  void close_all();

 private:
  // Whether of() has had it before; `communicator` is nullptr where it is no duplicate of that one.
  bool has_been_seen(MPI_Comm handle, Communicator*& communicator);
  Communicators();
  Communicator* add(std::unique_ptr<Communicator> made);
  static int on_copy(MPI_Comm handle, int keyval, void* extra, void* attribute, void* copy,
                     int* copied);
  static int on_delete(MPI_Comm handle, int keyval, void* attribute, void* extra);
  static int on_end(MPI_Comm handle, int keyval, void* attribute, void* extra);
  int keyval();
  void forget(Communicator* communicator);

  std::int64_t threshold_;
  std::int64_t threshold_without_line_;
  std::atomic<int> wanted_{0};
  std::atomic<bool> any_engine_{false};
  std::atomic<bool> spoken_{false};
  std::mutex lock_;
  std::atomic<int> keyval_{MPI_KEYVAL_INVALID};  // asked for in each small call, too
  std::vector<std::unique_ptr<Communicator>> all_;
  std::unique_ptr<Engine> engine_;
  bool opening_ = false;
};

}  // namespace ronde::mpi_allreduce
