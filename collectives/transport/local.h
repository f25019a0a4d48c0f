// SPDX-License-Identifier: Apache-2.0
// A transport between ranks that live in one process: messages are copied through mailboxes. The
// whole runtime is tested over it without MPI, and it can be told to misbehave.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "collectives/transport/transport.h"

namespace ronde::collectives {

// The faults of a hub. By default there are none.
struct FaultPlan {
  // test() reports every arrival and every finished send only after 0 to max_delay more calls,
  // drawn from the seed. Messages then overtake each other between tags and ranks, as they do on a
  // network.
  std::uint64_t seed = 0;
  int max_delay = 0;

  // A send finishes only when the other rank has received the message, as large ones over MPI do.
  bool synchronous_sends = false;

  // There are no larger tags, as with some MPIs.
  int largest_tag = std::numeric_limits<int>::max();

  // The connection of two ranks breaks after that many messages (both directions counted): what was
  // sent before still arrives, and everything else on it fails on both ranks.
  struct Cut {
    int a = 0;
    int b = 0;
    std::int64_t after_messages = 0;
  };
  std::vector<Cut> cuts{};

  // Message number `message` (from 0) from a rank to another arrives one byte longer than it was
  // sent.
  struct WrongLength {
    int from = 0;
    int to = 0;
    std::int64_t message = 0;
  };
  std::vector<WrongLength> wrong_lengths{};
};

// The mailboxes of a job of `size` ranks in this process. The hub owns copies of the messages until
// they are received.
//
// Thread safety: every function may be called from any thread.
class LocalHub {
 public:
  explicit LocalHub(int size, FaultPlan plan = {});

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] bool delays() const { return plan_.max_delay > 0; }
  [[nodiscard]] int largest_tag() const { return plan_.largest_tag; }
  [[nodiscard]] bool sends_are_synchronous() const { return plan_.synchronous_sends; }

  // The rest is for LocalEnd. Numbers count the messages of one direction of one tag.
  struct Route {
    int from;
    int to;
    int tag;
    friend auto operator<=>(const Route&, const Route&) = default;
  };
  // Stores a copy of the message and returns its number, or nullopt when the connection is cut.
  std::optional<std::int64_t> deliver(const Route& route, std::span<const std::byte> data)
      RONDE_EXCLUDES(mutex_);
  // Returns the number of the message that the next receive on this route is for.
  std::int64_t number_receive(const Route& route) RONDE_EXCLUDES(mutex_);
  enum class Pickup { kNotYet, kTaken, kWrongLength, kCut };
  struct PickupResult {
    Pickup what;
    std::size_t length;  // bytes of the message
  };
  // Copies message `number` to `to` and drops it, if it has arrived with that length.
  PickupResult pick_up(const Route& route, std::int64_t number, std::span<std::byte> to)
      RONDE_EXCLUDES(mutex_);
  int draw_delay() RONDE_EXCLUDES(mutex_);
  // Tells whether a send that was delivered may finish now: kNotYet, kTaken or kCut.
  Pickup poll_send(const Route& route, std::int64_t number) RONDE_EXCLUDES(mutex_);

 private:
  struct Message {
    std::vector<std::byte> data;
    int delay;
  };
  struct Mailbox {
    std::int64_t sent = 0;
    std::int64_t awaited = 0;
    std::map<std::int64_t, Message> messages;  // by number
  };
  using Pair = std::pair<int, int>;

  [[nodiscard]] static Pair pair_of(int a, int b) { return {std::min(a, b), std::max(a, b)}; }
  [[nodiscard]] bool is_cut(const Pair& pair) const RONDE_REQUIRES(mutex_);
  int draw() RONDE_REQUIRES(mutex_);

  const int size_;
  const FaultPlan plan_;
  base::Mutex mutex_;
  std::mt19937_64 random_ RONDE_GUARDED_BY(mutex_);
  std::map<Route, Mailbox> mailboxes_ RONDE_GUARDED_BY(mutex_);
  std::map<Pair, std::int64_t> messages_of_pair_ RONDE_GUARDED_BY(mutex_);
  std::map<Pair, std::int64_t> messages_in_direction_ RONDE_GUARDED_BY(mutex_);  // {from, to}
};

// One rank's end of the hub, which it shares the ownership of.
//
// Thread safety: one thread at a time; ends of different ranks may be used side by side.
class LocalEnd {
 public:
  using Request = std::uint64_t;

  // LocalEnd calls this with a rank that has a new message or failure to see, on the thread that
  // caused it, and outside all locks.
  using OnArrival = std::function<void(int rank)>;

  LocalEnd(std::shared_ptr<LocalHub> hub, int rank, OnArrival on_arrival = {});

  base::Result<Request> send(int peer, int tag, std::span<const std::byte> data);
  base::Result<Request> receive(int peer, int tag, std::span<std::byte> data);
  base::Result<bool> test(Request request);
  [[nodiscard]] int outstanding() const { return static_cast<int>(pending_.size()); }

 private:
  struct Pending {
    int peer;
    int tag;
    bool is_receive;
    std::span<std::byte> data;  // where a receive stores
    std::int64_t number;        // the message's on its route
    int delay;                  // calls of test() before a send finishes
  };

  [[nodiscard]] base::Status cut_error(const char* activity, int peer, int tag) const;
  base::Result<bool> test_receive(const Pending& pending);
  base::Result<bool> test_send(Pending& pending);

  const std::shared_ptr<LocalHub> hub_;
  const int rank_;
  const OnArrival on_arrival_;
  Request next_request_ = 1;
  std::unordered_map<Request, Pending> pending_;
};

// A transport over such an end. Where the hub delays, it is polled: a delay is counted in calls of
// test().
Transport local_transport(const std::shared_ptr<LocalHub>& hub, int rank,
                          LocalEnd::OnArrival on_arrival = {});

}  // namespace ronde::collectives
