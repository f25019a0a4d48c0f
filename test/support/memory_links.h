// SPDX-License-Identifier: Apache-2.0
// The links of all leaders of a job, in memory: what a leader sends becomes due at its neighbour at
// the time that the driver of the simulation chooses. They count what every host reads and writes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "runtime/links/links.h"
#include "runtime/links/tree.h"

namespace ronde::testing {

// The bytes of messages count the length in front of them, as on a socket.
struct Traffic {
  std::int64_t messages_read = 0;
  std::int64_t messages_written = 0;
  std::int64_t bytes_read = 0;
  std::int64_t bytes_written = 0;
};

// One direction of a connection. Messages of one flush are due at the same time.
struct MemoryPipe {
  struct Frame {
    std::int64_t due = 0;
    std::shared_ptr<const std::vector<std::byte>> bytes;  // nullptr for the end of the connection
  };
  std::deque<Frame> frames;
  std::int64_t last_due = 0;
};

// Thread safety: none.
class MemoryLinks final : public runtime::Links {
 public:
  // Returns the time at which a message that `from` sends now is due at `to`.
  using Due = std::function<std::int64_t(std::int32_t from, std::int32_t to)>;

  MemoryLinks(std::int32_t host, const std::int64_t& now, const Due& due)
      : host_(host), now_(now), due_(due) {}

  void add(From who, std::int32_t host, MemoryPipe& in, MemoryPipe& out) {
    neighbours_.push_back({who, host, &in, &out});
  }

  // ---- Links ----
  [[nodiscard]] std::int32_t children() const override {
    const bool has_parent = !neighbours_.empty() && neighbours_.front().who == From::kParent;
    return base::narrow<std::int32_t>(neighbours_.size()) - (has_parent ? 1 : 0);
  }
  base::Result<int> poll(const Take& take) override {
    int work = 0;
    for (Neighbour& neighbour : neighbours_) {
      auto& frames = neighbour.in->frames;
      while (!frames.empty() && frames.front().due <= now_ && !neighbour.ended) {
        const auto bytes = std::move(frames.front().bytes);
        frames.pop_front();
        ++work;
        if (bytes == nullptr) {
          neighbour.ended = true;
          continue;
        }
        traffic_.messages_read += 1;
        traffic_.bytes_read += length_of(*bytes);
        const auto message = runtime::decode_link_message(*bytes);
        RONDE_RETURN_IF_ERROR(message.status());
        RONDE_RETURN_IF_ERROR(take(neighbour.who, *message));
      }
    }
    return work;
  }
  base::Status send_up(const runtime::LinkMessage& message) override {
    queue(neighbours_.front(), std::make_shared<const std::vector<std::byte>>(encode(message)));
    return {};
  }
  base::Status send_down(const runtime::LinkMessage& message) override {
    if (children() == 0) return {};
    const auto bytes = std::make_shared<const std::vector<std::byte>>(encode(message));
    for (Neighbour& neighbour : neighbours_) {
      if (neighbour.who == From::kChild) queue(neighbour, bytes);
    }
    return {};
  }
  base::Result<bool> flush() override {
    for (Neighbour& neighbour : neighbours_) {
      if (neighbour.unsent.empty()) continue;
      MemoryPipe& out = *neighbour.out;
      out.last_due = std::max(out.last_due, due_(host_, neighbour.host));
      for (auto& bytes : neighbour.unsent) out.frames.push_back({out.last_due, std::move(bytes)});
      neighbour.unsent.clear();
    }
    return true;
  }
  [[nodiscard]] std::optional<Lost> take_lost() override {
    for (Neighbour& neighbour : neighbours_) {
      if (!neighbour.ended || neighbour.lost) continue;
      neighbour.lost = true;
      return Lost{neighbour.who, neighbour.host, "host " + std::to_string(neighbour.host), "",
                  true};
    }
    return std::nullopt;
  }
  base::Status call_roll() override { return {}; }
  [[nodiscard]] std::vector<Lost> silent() const override { return {}; }

  // Closes this leader's links: its neighbours see that when they have read the rest.
  void close() {
    flush().status().ignore();
    for (Neighbour& neighbour : neighbours_) {
      neighbour.unsent.push_back(nullptr);
    }
    flush().status().ignore();
  }

  // The time at which the next message is due, if there is one.
  [[nodiscard]] std::optional<std::int64_t> next_due() const {
    std::optional<std::int64_t> next;
    for (const Neighbour& neighbour : neighbours_) {
      if (neighbour.ended || neighbour.in->frames.empty()) continue;
      const std::int64_t due = neighbour.in->frames.front().due;
      next = std::min(next.value_or(due), due);
    }
    return next;
  }

  [[nodiscard]] const Traffic& traffic() const { return traffic_; }
  void forget_traffic() { traffic_ = {}; }

 private:
  struct Neighbour {
    From who;
    std::int32_t host;
    MemoryPipe* in;
    MemoryPipe* out;
    std::vector<std::shared_ptr<const std::vector<std::byte>>> unsent{};
    bool ended = false;
    bool lost = false;  // the loss has been reported
  };

  static std::int64_t length_of(const std::vector<std::byte>& bytes) {
    return base::narrow<std::int64_t>(sizeof(std::uint32_t) + bytes.size());
  }
  void queue(Neighbour& neighbour, std::shared_ptr<const std::vector<std::byte>> bytes) {
    traffic_.messages_written += 1;
    traffic_.bytes_written += length_of(*bytes);
    neighbour.unsent.push_back(std::move(bytes));
  }

  std::int32_t host_;
  const std::int64_t& now_;
  const Due& due_;
  std::vector<Neighbour> neighbours_;  // the parent first
  Traffic traffic_;
};

// Thread safety: none.
class MemoryNetwork {
 public:
  // `now` is read whenever a host looks, and must outlive it.
  MemoryNetwork(const runtime::HostTree& tree, const std::int64_t& now, MemoryLinks::Due due)
      : due_(std::move(due)), pipes_(2 * base::narrow<std::size_t>(tree.hosts())) {
    using From = runtime::Links::From;
    for (std::int32_t host = 0; host < tree.hosts(); ++host) {
      links_.push_back(std::make_unique<MemoryLinks>(host, now, due_));
      MemoryLinks& links = *links_.back();
      if (host != runtime::HostTree::kRoot) {
        links.add(From::kParent, tree.parent_of(host), down_to(host), up_from(host));
      }
      for (const std::int32_t child : tree.children_of(host)) {
        links.add(From::kChild, child, up_from(child), down_to(child));
      }
    }
  }
  MemoryNetwork(const MemoryNetwork&) = delete;
  MemoryNetwork& operator=(const MemoryNetwork&) = delete;

  [[nodiscard]] MemoryLinks& links(std::int32_t host) {
    return *links_.at(base::narrow<std::size_t>(host));
  }

 private:
  [[nodiscard]] MemoryPipe& up_from(std::int32_t host) {
    return pipes_[2 * base::narrow<std::size_t>(host)];
  }
  [[nodiscard]] MemoryPipe& down_to(std::int32_t host) {
    return pipes_[2 * base::narrow<std::size_t>(host) + 1];
  }

  MemoryLinks::Due due_;
  std::vector<MemoryPipe> pipes_;
  std::vector<std::unique_ptr<MemoryLinks>> links_;
};

}  // namespace ronde::testing
