// SPDX-License-Identifier: Apache-2.0
// What carries bytes between ranks: an end of a C table (plugin.h), whose errors are Status here.
// The algorithms are written against it alone, so the same ring runs over MPI in a job and over
// memory, with faults injected, in a test.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/status.h"
#include "collectives/transport/plugin.h"
#include "collectives/transport/transport_library.h"

namespace ronde::collectives {

// The collectives of a job use tags below this, and each of its process sets has some above.
inline constexpr int kTagsOfJob = 1 << 14;
inline constexpr int kTagsOfSet = 1 << 12;

// Messages between two ranks with one tag arrive in the order they were sent, and receives take
// them in the order they were posted. An empty message is a message. Memory passed to send() or
// receive() remains the caller's; it must stay, and a send's must not be written, until test()
// returned true. After an error the state of the outstanding requests is unknown, so the memory
// must outlive the transport.
//
// Thread safety: one thread at a time (whoever has the agent's role).
class Transport final {
 public:
  using Request = std::uint64_t;

  struct Options {
    int rank = 0;
    int size = 1;
    ronde_meeting_party* party = nullptr;  // if this plug-in's meeting introduced the ranks
    std::string interfaces{};              // as in ronde_transport_host
    base::Nanoseconds peer_timeout{};
    base::Nanoseconds close_patience{};  // for what was sent to be delivered
    std::function<void(base::LogLevel level, std::string_view text)> log{};
  };

  // This rank's end of the transport of a job. The destructor closes it.
  static base::Result<std::unique_ptr<Transport>> open(const TransportLibrary& library,
                                                       Options options);
  // Takes over an end that is connected. `polled` is what needs_polling() returns, and
  // `largest_tag` what largest_tag() does.
  Transport(const ronde_transport& table, ronde_transport_end* end, Options options, bool polled,
            int largest_tag);
  // Some of the ranks of `all`, numbered anew: an algorithm that is written for all ranks of a
  // transport runs among the members alone. members[i] is the rank that is i here; this rank is one
  // of them. Two members that use different groups must use different tags. `all` must outlive this
  // object; what is not a message (outstanding requests, abandon()) is that of `all`.
  // With a range of tags of its own: first_tag is what its tag 0 is for `all`, and it has as many
  // as `tags` says.
  struct Tags {
    int first = 0;
    int count = kTagsOfJob;
  };
  Transport(const Transport& all, std::vector<int> members, std::optional<Tags> tags = {});

  // What the other ranks need for connect(); it may be empty.
  base::Result<std::vector<std::byte>> address();
  // Takes the addresses of all ranks, by rank, before the first message.
  base::Status connect(std::span<const std::vector<std::byte>> addresses);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  // It has tags from 0 on, so many.
  [[nodiscard]] int tags() const { return tags_.count; }
  // The largest tag that the end can send.
  [[nodiscard]] int largest_tag() const { return end_->info.largest_tag; }

  base::Result<Request> send(int peer, int tag, std::span<const std::byte> data);
  base::Result<Request> receive(int peer, int tag, std::span<std::byte> data);

  // Returns true once, when the request has finished; the request is gone then, and after an error
  // as well. It is an error if a message has another length than its receive.
  base::Result<bool> test(Request request);

  // Tells whether progress needs repeated test() calls (MPI), or an arrival rings a doorbell
  // (memory), or makes a descriptor readable.
  [[nodiscard]] bool needs_polling() const { return end_->polled; }

  // A descriptor on which a thread that waits for messages can sleep; -1 where there is none. It
  // belongs to the transport.
  [[nodiscard]] int descriptor() const { return end_->info.fd; }
  // To be called by a thread that is about to sleep: from now on the next event makes the
  // descriptor readable. False: something has been handled since the last call of arm(), or is
  // there now. The thread must not sleep then, but call progress() and test its requests again.
  base::Result<bool> arm();
  // Handles what has arrived, also while nothing is outstanding (another rank connects).
  base::Status progress();

  // The number of requests that test() has not reported yet.
  [[nodiscard]] int outstanding() const { return end_->table.outstanding(end_->end); }

  // Gives up after a failure: peers may be dead, so that destroying this object waits for nobody.
  // It is not used otherwise any more.
  void abandon() { end_->table.abandon(end_->end); }

  // Tells whether memory of outstanding requests may be written after this object was destroyed:
  // then that memory must stay until the process ends. MPI does so after a failure.
  [[nodiscard]] bool writes_after_destruction() const {
    return end_->info.writes_after_close != 0 && outstanding() > 0;
  }

 private:
  // It has an address of its own, which the end knows.
  struct End {
    End(const ronde_transport& its_table, Options its_options);
    ~End();
    End(const End&) = delete;
    End& operator=(const End&) = delete;

    const ronde_transport& table;
    const Options options;
    ronde_transport_host host{};
    ronde_transport_info info{};
    ronde_transport_error error;
    ronde_transport_end* end = nullptr;
    bool polled = false;
  };

  explicit Transport(std::unique_ptr<End> end)
      : owned_(std::move(end)),
        end_(owned_.get()),
        rank_(end_->options.rank),
        size_(end_->options.size) {}
  [[nodiscard]] int rank_of(int peer) const {
    return members_.empty() ? peer : members_.at(base::narrow<std::size_t>(peer));
  }

  std::unique_ptr<End> owned_;  // nullptr in a group
  End* end_;
  int rank_;
  int size_;
  std::vector<int> members_;  // of a group, in the numbers of the end
  Tags tags_;
};

}  // namespace ronde::collectives
