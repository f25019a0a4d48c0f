// SPDX-License-Identifier: Apache-2.0
// One rank's end of a job's transport over UCX: a worker of its own, an endpoint to each rank that
// it exchanges messages with, and tagged messages.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/port_range.h"
#include "base/process/fork_mark.h"
#include "base/status.h"
#include "collectives/transport/message_slots.h"
#include "collectives/transport/plugin.h"
#include "collectives/transport/ucx/library.h"

namespace ronde::collectives::ucx {

// Endpoints are made when a rank first sends to or receives from another one, however many ranks
// the job has. Between hosts a rank exchanges messages with one rank of each other host, so
// connecting all of them would make each host keep as many times more connections as it has ranks;
// and a rank that cannot be reached is named by the first message just as well. A receive makes an
// endpoint too: without one UCX could not report that the other rank has died.
//
// Errors of messages are kTransport; kPeerFailed with the rank where the connection is lost.
//
// Thread safety: one thread at a time, not always the same one.
class End {
 public:
  using Request = std::uint64_t;

  // What the host says stays valid as long as the end.
  static base::Result<std::unique_ptr<End>> open(const ronde_transport_host& host,
                                                 ronde_transport_info& info);
  // Cancels what is outstanding and drops the connections; waits for no other rank. The memory of
  // requests is not touched afterwards, unless writes_after_destruction().
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  // The bytes by which other ranks reach this end.
  [[nodiscard]] std::span<const std::byte> address() const { return address_; }
  // Takes the addresses of all ranks, by rank, and copies them.
  base::Status connect(std::span<const std::span<const std::byte>> addresses);

  base::Result<Request> send(int peer, int tag, std::span<const std::byte> data);
  base::Result<Request> receive(int peer, int tag, std::span<std::byte> data);
  // As Transport::test().
  base::Result<bool> test(Request request);
  [[nodiscard]] int outstanding() const { return outstanding_; }

  // Becomes readable when progress() has something to do, if arm() returned true before.
  [[nodiscard]] int descriptor() const { return descriptor_; }
  // Handles what has arrived; false: nothing had.
  bool progress();
  // Asks for the descriptor to become readable at the next event. False: something has been handled
  // since the last call, so that requests may have ended, or is there now. It handles what a call
  // since the last progress() has left for it: UCX makes no descriptor readable for that.
  base::Result<bool> arm();

  // Before the destructor: waits until the ranks that this one is connected to, and that are not
  // closing themselves, have received what it has sent, or the deadline. A connection that is lost
  // may take with it what has arrived on another one of the same rank, so a rank that closes says
  // good-bye, and is answered by all that have an end: whoever has received the good-bye has
  // received all before it.
  //
  // The rule of closing: an end waits for another rank until that rank has answered it, or is lost,
  // or has said good-bye itself and the answer to it has left this end. A rank that says good-bye
  // receives nothing more and leaves when it is answered, so it is not asked for an answer that it
  // may be too late to give. No end leaves before the answers that others wait for, since a rank
  // that is connected by shared memory never notices that the end which owes it one has gone.
  void say_good_bye(const base::Clock& clock, base::Instant deadline);

  // The error of a forked child, and of every call after abandon().
  [[nodiscard]] base::Status usable() const;
  // May be called by any thread.
  void abandon() { abandoned_.store(true, std::memory_order_release); }
  // Says good-bye, unless the job has failed, and ends `end`.
  static void close(std::unique_ptr<End> end, base::Nanoseconds patience);

 private:
  using Kind = MessageSlot::Kind;

  // How far this rank and another one have come in closing.
  enum class Farewell : std::uint8_t {
    kNone,
    kSaid,      // this rank has said good-bye
    kHeard,     // the other one has said good-bye, and is owed an answer
    kAnswered,  // the answer is on its way
    kOver,      // the other one has answered, so it waits for nothing from this rank
  };

  struct Peer {
    std::vector<std::byte> address;
    ucp_ep_h endpoint = nullptr;
    ucs_status_t failure = UCS_OK;
    Farewell farewell = Farewell::kNone;
    void* flush = nullptr;  // UCX's request that ends when the answer has left; null: there is none
  };

  // What ends send each other beside messages, before they close.
  enum class Parting : std::int32_t { kGoodBye, kAnswer };
  struct PartingMessage {
    std::int32_t rank;
    Parting kind;
  };

  struct Slot : MessageSlot {
    void* request = nullptr;  // UCX's; null once it has ended
  };

  End(const Library& library, const ronde_transport_host& host);
  base::Status start();
  // Opens UCX and a worker that listens at `port`; 0: wherever UCX chooses. False: it is taken.
  base::Result<bool> open_worker(std::uint16_t port);
  base::Status open_worker_in(const base::PortRange& ports);
  base::Status configure(ucp_config_t* config, std::uint16_t port) const;
  [[nodiscard]] base::Status check(ucs_status_t status, const char* activity) const;
  [[nodiscard]] base::Status check_message(int peer, int tag) const;
  base::Result<ucp_ep_h> endpoint_to(int peer);
  static void on_lost(void* peer, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t on_parting(void* end, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t* parameters);
  void send_parting(Parting kind, int peer);
  void answer(int peer);
  [[nodiscard]] bool may_leave(const Peer& peer) const;
  // Takes a slot for a message that UCX can be given now.
  base::Result<std::size_t> begin(Kind kind, int peer, int tag, std::size_t bytes);
  // Keeps what UCX returned for the message of a slot.
  Request keep(std::size_t index, ucs_status_ptr_t request);
  void look(Slot& slot);
  void cancel(Slot& slot);
  [[nodiscard]] base::Status outcome(const Slot& slot, ucs_status_t status,
                                     std::size_t length) const;
  [[nodiscard]] base::Status failure(const std::string& activity, int peer,
                                     ucs_status_t status) const;
  [[nodiscard]] std::string describe(const Slot& slot) const { return slot.text(host_.rank); }
  void close_endpoints();

  const Library& ucx_;
  const ronde_transport_host& host_;  // of whoever opened this end; it outlives it
  const base::ForkMark process_;
  std::atomic<bool> abandoned_{false};
  // UCX may read them until they have left.
  const PartingMessage good_bye_{host_.rank, Parting::kGoodBye};
  const PartingMessage answer_{host_.rank, Parting::kAnswer};
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::vector<std::byte> address_;
  std::vector<Peer> peers_;  // by rank; its elements do not move, since UCX keeps their addresses
  MessageSlots<Slot> slots_;
  int outstanding_ = 0;
  std::vector<int> answers_owed_;  // ranks that have said good-bye
  std::uint64_t looks_ = 1;
  bool moved_ = false;  // something has been handled since the last arm()
  bool owed_ = false;   // a call since the last progress() may have left something for it
};

}  // namespace ronde::collectives::ucx
