// SPDX-License-Identifier: Apache-2.0
// The negotiation, as a pure object: announcements go in, decisions come out. It knows no clock, no
// thread and no memory of others; the arrival words of the plan are behind an interface.
//
// A tensor becomes ready in one of two ways:
//   planned   its name has an entry of the plan. Ranks count themselves in on the entry's arrival
//             word; the last one reports the entry (on_entry_ready). No name moves.
//   in full   at least one rank sent a full request: the tensor is new there, or it differs from
//             the plan. The entry's generation is closed, so that no rank can count itself in any
//             more; those that had are `anonymous` in the pending record, the others send full
//             requests. When all are accounted for, their statements are compared: the tensor gets
//             an entry, or an error that every rank receives.
//
// The arrival words of other hosts are out of reach. Their leaders report, each for a subtree of
// hosts: that all of its ranks have counted themselves in (on_subtree_ready); and, asked by a
// CloseDecision, which had when the generation was closed (on_closed). While such answers are
// missing no rank is reported as late.
#pragma once

#include <compare>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/numbers.h"
#include "fusion/batching.h"
#include "runtime/links/link_messages.h"
#include "runtime/negotiate/disagreement.h"
#include "runtime/negotiate/messages.h"
#include "runtime/tensors/joined.h"
#include "runtime/tensors/lateness.h"
#include "runtime/tensors/signature.h"

namespace ronde::runtime {

// The arrival words of the plan that the coordinator can reach: one per entry, each a generation
// and a count. Ranks change them at any time; the implementation makes each call atomic.
// Thread safety: the coordinator alone calls it.
class ArrivalWords {
 public:
  virtual ~ArrivalWords() = default;
  // From now on ranks can arrive only at this generation, whose count is 0. Returns how many ranks
  // had arrived at the generation before.
  virtual std::uint32_t close_generation(std::int32_t entry, std::uint32_t generation) = 0;
  // Sets the count of a complete entry back to 0.
  virtual void reset(std::int32_t entry) = 0;
  virtual std::uint32_t count(std::int32_t entry) = 0;
  // Whether this rank counted itself in since `last_batch`, the last one with this entry (0: none).
  // Exact once the rank has stopped submitting, a hint before. Always false for ranks of other
  // hosts, whose words are out of reach.
  virtual bool has_arrived(std::int32_t rank, std::int32_t entry, std::uint64_t last_batch) = 0;
  // In which steps the ranks within reach are, all of which, but for those that have joined, have
  // arrived at this entry.
  virtual StepSpan steps(std::int32_t entry, const Joined& joined) = 0;
  // When these ranks have arrived.
  virtual ArrivalSpan arrivals(std::int32_t entry, const Joined& joined) = 0;
  // The step of a rank that has arrived; none for ranks of other hosts.
  virtual StepNumber step_of(std::int32_t rank, std::int32_t entry) = 0;
};

// Thread safety: none; only the coordinator's agent uses it. `arrivals` must outlive it.
class Negotiator {
 public:
  // Where arrivals come from: ranks whose words are within reach, and subtrees that report.
  struct Reporters {
    std::int32_t ranks_here = 0;
    std::int32_t subtrees = 0;
  };

  // For a job whose ranks' words are all within reach.
  Negotiator(std::int32_t ranks, std::int64_t plan_capacity, ArrivalWords& arrivals)
      : Negotiator(ranks, Reporters{ranks, 0}, plan_capacity, arrivals) {}
  Negotiator(std::int32_t ranks, Reporters reporters, std::int64_t plan_capacity,
             ArrivalWords& arrivals);
  // Records which ranks are late; it must outlive this. Before the first arrival.
  void record_in(LateRanks& late) { late_ = &late; }

  void on_request(std::int32_t rank, const RequestAnnouncement& request);
  // The last of the ranks within reach has arrived at this entry.
  void on_entry_ready(std::int32_t entry);
  void on_subtree_ready(const ReadyReport& report);
  // A subtree answers a CloseDecision: how many of its ranks had arrived before, and which.
  void on_closed(const ClosedReport& report);
  // The rank takes part in nothing from now on but what it has submitted, until all ranks have
  // joined. here: its words are within reach.
  void on_join(std::int32_t rank, bool here = true);
  // Forced: the rank no longer waits for the tensors it has submitted.
  void on_closing(std::int32_t rank, const ClosingAnnouncement& closing);

  // What was decided since the last call, in the order of the job.
  std::vector<Decision> take_decisions();

  // While devices are held back, tensors of a device are passed over.
  void hold_devices_back(bool held) { devices_held_ = held; }
  [[nodiscard]] bool has_ready() const { return ready_.any(devices_held_); }
  // The next batch, of at most `limit` bytes or one tensor, of what is ready on every rank; nothing
  // if no tensor is. The decisions made before must be taken (and sent) first.
  std::optional<BatchDecision> next_batch(base::Bytes limit);

  // For the report of a stall: which ranks wait for this tensor, and for which it waits. Nothing if
  // no rank waits.
  struct Waiting {
    std::vector<std::int32_t> ready;
    std::vector<std::int32_t> missing;
    std::string steps;  // who has taken fewer of its steps
  };
  [[nodiscard]] std::optional<Waiting> waiting_for(const std::string& name) const;
  // How many batches there were so far, and whether this tensor has been in one after so many.
  // False for a tensor without an entry.
  [[nodiscard]] std::uint64_t batches() const { return next_sequence_ - 1; }
  [[nodiscard]] bool was_in_batch_since(const std::string& name, std::uint64_t batches) const;
  // Asks the other hosts which ranks wait for this tensor, where that is not known here. True: all
  // is known, call waiting_for(). False: call it again when answers have arrived.
  [[nodiscard]] bool find_out(const std::string& name);

 private:
  struct Ready {
    std::int32_t entry = -1;
    bool planned = false;  // the arrival word still holds the count
    // Everything about it, where it has no entry. Thousands may wait, so the others take little
    // room in the caches.
    std::unique_ptr<BatchItem> by_name;
  };
  // Tensors fuse only when one pass over memory can serve them: the same operation on the same type
  // with the same factors. The number of a device is not compared, because each rank has its own.
  struct FusionClass {
    Operation operation{};
    base::DType dtype = base::DType::kF32;
    base::ReduceOp op = base::ReduceOp::kAverage;
    std::int32_t root = 0;
    std::uint64_t prescale = 0;  // the bits of the factor
    std::uint64_t postscale = 0;
    base::Compression compression = base::Compression::kNone;
    bool on_board = false;
    bool weighted = false;
    std::vector<std::int32_t> absent{};

    friend auto operator<=>(const FusionClass&, const FusionClass&) = default;
  };
  using ReadyQueues = fusion::ReadyQueues<FusionClass, Ready>;
  enum class EntryState : std::uint8_t { kFree, kBound, kUnbound };
  struct Entry {
    EntryState state = EntryState::kFree;
    std::uint32_t generation = 0;
    bool is_ready = false;         // complete, and not yet in a batch
    std::int32_t reports = 0;      // how many reporters are ready for the present step
    bool here = false;             // the ranks within reach are one of them
    StepSpan steps;                // of the ranks whose reporters are ready
    ArrivalSpan arrivals;          // likewise
    std::uint64_t last_batch = 0;  // the last batch with this entry, whatever its name was
    std::list<std::int32_t>::iterator use;
    ReadyQueues::Kind kind;  // of the tensor, and the bytes that it moves
    base::Bytes bytes;
    std::string name;
    std::string place;
    AgreedTensor tensor;
  };
  struct Pending {
    std::int32_t entry = -1;
    std::vector<std::optional<Statement>> statements;  // by rank
    std::uint32_t requests = 0;                        // how many ranks have made one
    // Ranks that had counted themselves in on the entry when its generation was closed, and what
    // they had agreed to then.
    std::uint32_t anonymous = 0;
    std::int32_t awaited = 0;  // how many subtrees must still answer and may add to `anonymous`
    std::map<std::int64_t, StepNumber> anonymous_elsewhere;  // ranks of other hosts
    AgreedTensor anonymous_tensor;
    std::string anonymous_place;
    StepSpan steps;  // of all ranks, where these differed when all had arrived
  };
  using Pendings = std::map<std::string, Pending>;

  static ReadyQueues::Kind kind_of(const AgreedTensor& tensor);
  void push_ready(std::int32_t entry, bool planned);
  Entry& entry_at(std::int32_t entry);
  // Stops arrivals at a bound entry, and moves those that were counted to a pending record.
  Pendings::iterator unbind(std::int32_t entry);
  void report_ready(std::int32_t entry, const StepSpan& steps, const ArrivalSpan& arrivals);
  // What is known of the step of a rank that is accounted for.
  [[nodiscard]] StepNumber step_of(const Pending& pending, std::int32_t rank) const;
  [[nodiscard]] StepSpan steps_of(const Pending& pending) const;
  // "rank 1 has taken 9 steps, rank 0 is in its 10th", where rank `late` is behind one that waits
  // for this tensor; else empty. `pending` is nullptr for a tensor that has an entry alone.
  [[nodiscard]] std::string who_is_behind(const Pending* pending, std::int32_t entry,
                                          std::int32_t late) const;
  static void forget_reports(Entry& entry);
  // Has what is ready travel by name, so that no rank counts itself in on its entries afterwards.
  void name_what_is_ready();
  // How many of the ranks that have joined it goes on without.
  [[nodiscard]] std::uint32_t absent_from(const Pending& pending) const;
  // What each rank says, those that it goes on without too, which are added to `absent`.
  [[nodiscard]] std::vector<Statement> statements_of(const Pending& pending,
                                                     std::vector<std::int32_t>& absent) const;
  // Why what the others have agreed on cannot go on without those that are absent.
  [[nodiscard]] static base::Status check_absent(const std::string& name,
                                                 const AgreedTensor& agreed);
  void end_joins();
  void settle(Pendings::iterator pending);
  void resolve(Pendings::iterator pending);
  void fail(Pendings::iterator pending, base::Code code, const std::string& text,
            const std::string& place, std::int32_t rank);
  [[nodiscard]] std::int32_t bind(const std::string& name, std::int32_t entry, AgreedTensor tensor,
                                  std::string place);
  [[nodiscard]] std::int32_t take_free_entry();
  void release_entry(std::int32_t entry);
  [[nodiscard]] bool has_arrived(std::int32_t rank, std::int32_t entry) const {
    return arrivals_.has_arrived(rank, entry,
                                 entries_.at(static_cast<std::size_t>(entry)).last_batch);
  }
  [[nodiscard]] bool includes(const Pending& pending, std::int32_t rank) const;
  // Fails tensors that can never complete because a rank is closing, and lets ranks depart for
  // which nothing is left to do.
  void sweep();
  void tell_left(std::int32_t rank);

  std::int32_t ranks_;
  Reporters reporters_;
  std::int64_t capacity_;
  ArrivalWords& arrivals_;
  LateRanks* late_ = nullptr;
  std::vector<Entry> entries_;
  std::vector<std::int32_t> free_;
  std::list<std::int32_t> use_order_;  // bound entries, least recently used first
  std::map<std::string, std::int32_t> entry_of_name_;
  Pendings pendings_;
  ReadyQueues ready_;
  bool devices_held_ = false;
  std::vector<Decision> decisions_;
  std::uint64_t next_sequence_ = 1;
  enum class Leaving : std::uint8_t { kNo, kClosing, kForced, kDeparted };
  std::vector<Leaving> leaving_;
  std::map<std::int32_t, StepNumber> last_steps_;  // of ranks that are leaving
  bool anyone_leaving_ = false;
  Joined joined_;
  std::uint32_t joined_here_ = 0;  // of the ranks within reach
  std::int32_t last_joined_ = -1;
};

}  // namespace ronde::runtime
