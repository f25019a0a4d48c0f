// SPDX-License-Identifier: Apache-2.0
// A store that the program brings, over which its ranks meet: two functions, of whatever the
// program has (a service of keys and values, a shared folder).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collectives/transport/meeting.h"

namespace ronde::runtime {

// Thread safety: the thread that opens the engine calls it, and no other.
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  // Every rank can get it from then on. A key is set once or, by the same rank, again.
  virtual base::Status set(const std::string& key, std::span<const std::byte> bytes) = 0;
  // Waits until some rank has set the key. kDeadline: none has, within `timeout`.
  virtual base::Result<std::vector<std::byte>> get(const std::string& key,
                                                   base::Nanoseconds timeout) = 0;
};

// The meeting of `size` ranks over a store: every rank puts its bytes there, rank 0 collects them
// and puts all of them there under one key, so that a round costs two accesses of each rank and one
// more of rank 0 for each other one. The keys begin with "ronde/"; a store is good for one engine,
// another needs another one, or another prefix. What is missing at the deadline is named; a rank
// that dies is missing. Whoever can write to the store can take part.
base::Result<std::unique_ptr<collectives::Meeting>> meet_over(std::shared_ptr<Store> store,
                                                              std::int32_t rank, std::int32_t size,
                                                              const base::Clock& clock,
                                                              base::Instant deadline);

}  // namespace ronde::runtime
