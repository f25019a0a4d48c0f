// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/message_socket.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <zmq.hpp>

#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/server/encoding.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

namespace {

constexpr const char* kMonitor = "inproc://monitor";
constexpr std::uint32_t kMostPieces = 1U << 16U;  // 64 GiB of floats
// Pieces in ZeroMQ's queues: to a peer (their floats are not copied), and from a peer.
constexpr int kMostSent = 16;
constexpr int kMostReceived = 8;
constexpr std::size_t kMostAtOnce = std::size_t{1} << 26U;  // bytes that are read in one go
constexpr std::size_t kFloatFrames = 4;                     // of a piece, at most
constexpr double kRetry = 1e-3;
constexpr double kStale = 60.0;            // seconds until an incomplete message is forgotten
constexpr std::uint64_t kComplaints = 10;  // a line for each; then one for a thousand

// ZeroMQ's form of "host:port". ZeroMQ cannot bind a host's name, so that binds all addresses of
// the host; the keys keep strangers out.
std::string endpoint(const Access& access, const std::string& address, bool binds) {
  if (!access.folder.empty()) return "ipc://" + socket_in(access.folder, address);
  if (address.find("://") != std::string::npos) return address;
  const std::size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon + 1);
  if (host == "localhost") return "tcp://127.0.0.1:" + port;
  const bool numeric =
      host.starts_with('[') || host.find_first_not_of("0123456789.") == std::string::npos;
  return binds && !numeric ? "tcp://*:" + port : "tcp://" + address;
}

// Releases the owner of a frame's memory, once ZeroMQ has sent it. Runs on ZeroMQ's thread.
void release(void* /*data*/, void* owner) {
  delete static_cast<std::shared_ptr<const void>*>(owner);
}

zmq::message_t frame_of(const Floats::Part& floats) {
  auto owner = std::make_unique<std::shared_ptr<const void>>(floats.owner);
  // ZeroMQ takes no const, but does not write. It does not call release() if it throws.
  zmq::message_t frame(const_cast<float*>(floats.values.data()), floats.values.size_bytes(),
                       release, owner.get());
  static_cast<void>(owner.release());  // NOLINT(bugprone-unused-return-value): release() has it now
  return frame;
}

// The options of both ends of a connection. The kernel's keep-alive finds a peer that was cut off.
// ZeroMQ's own heartbeats abort the process (4.3.4: `!_io_error`) if one is due on a connection
// whose input has stopped, because of a full queue or a closed socket, and whose other end has just
// gone.
void set_up(zmq::socket_t& socket, const std::string& address,
            const MessageSocketOptions& options) {
  socket.set(zmq::sockopt::ipv6, address.starts_with('['));
  socket.set(zmq::sockopt::sndhwm, kMostSent);
  socket.set(zmq::sockopt::rcvhwm, kMostReceived);
  socket.set(zmq::sockopt::maxmsgsize, options.frame_bytes);
  socket.set(zmq::sockopt::linger, 2000);
  socket.set(zmq::sockopt::handshake_ivl, 5000);
  socket.set(zmq::sockopt::tcp_keepalive, 1);  // after 15 s of silence 5 probes, 3 s apart
  socket.set(zmq::sockopt::tcp_keepalive_idle, 15);
  socket.set(zmq::sockopt::tcp_keepalive_intvl, 3);
  socket.set(zmq::sockopt::tcp_keepalive_cnt, 5);
  socket.set(zmq::sockopt::tcp_maxrt, 30'000);  // milliseconds in which nothing sent is confirmed
}

// The first frame of a piece: the sender's number of the message, the piece's number, and how many
// pieces there are. The first piece has header, text, ids and some floats, the others have floats.
struct Tag {
  std::uint64_t message = 0;
  std::uint32_t piece = 0;
  std::uint32_t pieces = 0;
};

struct TaggedPiece {
  Tag tag;
  std::vector<zmq::message_t> frames;
  std::size_t bytes = 0;

  void add(zmq::message_t frame) {
    bytes += frame.size();
    frames.push_back(std::move(frame));
  }
};

// A message of which some pieces have come.
struct Incoming {
  Tag next;
  std::vector<Frame> frames;
  std::size_t bytes = 0;
  double since = 0.0;
};

}  // namespace

// The pieces that wait for a peer.
struct MessageSocket::Outgoing {
  zmq::socket_t* socket = nullptr;
  std::string identity{};  // of a ROUTER's peer; a DEALER has one peer
  std::deque<TaggedPiece> pieces{};
  std::size_t messages = 0;
  std::size_t bytes = 0;

  // Returns false if ZeroMQ takes no more now.
  bool send_one() {
    constexpr auto kFirst = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
    TaggedPiece& piece = pieces.front();
    const auto tag = zmq::buffer(&piece.tag, sizeof piece.tag);
    if (!identity.empty() && !socket->send(zmq::buffer(identity), kFirst)) return false;
    if (!socket->send(tag, kFirst)) return false;
    for (zmq::message_t& frame : piece.frames) {
      const bool more = &frame != &piece.frames.back();
      (void)socket->send(frame, more ? zmq::send_flags::sndmore : zmq::send_flags::none);
    }
    bytes -= piece.bytes;
    messages -= piece.tag.piece + 1 == piece.tag.pieces ? 1 : 0;
    pieces.pop_front();
    return true;
  }
};

struct MessageSocket::Sockets {
  SocketLock lock;  // first, so that it is released after all sockets are closed
  zmq::context_t context{1};
  zmq::socket_t router;
  zmq::socket_t monitor;
  std::map<std::pair<Role, std::uint32_t>, zmq::socket_t> dealers;
  std::map<std::string, Outgoing> outgoing;
  std::map<std::string, Incoming> incoming;
  std::uint64_t sent = 0;  // messages
  int bell = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

  ~Sockets() {
    if (bell >= 0) ::close(bell);
  }
};

MessageSocket::MessageSocket(MessageSocketOptions options)
    : options_(std::move(options)), sockets_(std::make_unique<Sockets>()) {}

MessageSocket::~MessageSocket() = default;

void MessageSocket::listen(const std::string& address) {
  zmq::socket_t& router = sockets_->router;
  router = zmq::socket_t(sockets_->context, zmq::socket_type::router);
  router.set(zmq::sockopt::router_mandatory, true);
  // A task that connects again before the end of its first connection was noticed keeps its name:
  // otherwise ZeroMQ takes the first frame on the new connection for the name.
  router.set(zmq::sockopt::router_handover, true);
  set_up(router, address, options_);
  if (const auto& keys = options_.access.keys) {
    router.set(zmq::sockopt::curve_server, true);
    router.set(zmq::sockopt::curve_secretkey, keys->server_secret);
  }
  zmq_socket_monitor(router.handle(), kMonitor,
                     ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                         ZMQ_EVENT_HANDSHAKE_FAILED_AUTH);
  sockets_->monitor = zmq::socket_t(sockets_->context, zmq::socket_type::pair);
  sockets_->monitor.connect(kMonitor);
  try {
    const std::string& folder = options_.access.folder;
    if (!folder.empty() && !sockets_->lock.take(socket_in(folder, address))) throw zmq::error_t();
    router.bind(endpoint(options_.access, address, true));
  } catch (const zmq::error_t& error) {
    const bool taken = error.num() == EADDRINUSE;
    throw TrainerError(text_of(options_.self) + " cannot listen at " + address + ": " +
                           (taken ? "another process has this address, so end it or name another "
                                    "one in the lists of all tasks"
                                  : error.what()),
                       kExitConfiguration);
  }
}

void MessageSocket::connect(const Address& to, const std::string& address) {
  zmq::socket_t dealer(sockets_->context, zmq::socket_type::dealer);
  dealer.set(zmq::sockopt::routing_id, identity_of(options_.self));
  set_up(dealer, address, options_);
  dealer.set(zmq::sockopt::reconnect_ivl, 50);
  dealer.set(zmq::sockopt::reconnect_ivl_max, 1000);
  if (const auto& keys = options_.access.keys) {
    dealer.set(zmq::sockopt::curve_serverkey, keys->server_public);
    dealer.set(zmq::sockopt::curve_publickey, keys->client_public);
    dealer.set(zmq::sockopt::curve_secretkey, keys->client_secret);
  }
  try {
    dealer.connect(endpoint(options_.access, address, false));
  } catch (const zmq::error_t& error) {
    throw TrainerError(text_of(to) + " cannot be reached at '" + address + "': " + error.what() +
                           ": name it as host:port",
                       kExitConfiguration);
  }
  sockets_->dealers.insert_or_assign({to.role, to.index}, std::move(dealer));
}

void MessageSocket::send(const Message& message) {
  const auto found = sockets_->dealers.find({message.to.role, message.to.index});
  const bool by_router = found == sockets_->dealers.end();
  zmq::socket_t& socket = by_router ? sockets_->router : found->second;
  if (!socket) return;
  const std::string name =
      identity_of(by_router ? message.to : Address{message.to.role, message.to.index, 0});
  pump();
  Outgoing& to = sockets_->outgoing[name];
  to.socket = &socket;
  if (by_router) to.identity = name;
  if (to.messages > 0) {
    // On a slow line signs of life would pile up behind large answers.
    if (message.kind == Kind::kBeatBack || message.kind == Kind::kBeat) return;
    const bool fits = to.bytes + bytes_of(message.floats) <= options_.waiting_bytes;
    if (to.messages >= options_.waiting || !fits) return;
  }
  const Header header = header_of(message);
  const auto floats = float_frames_of(message);
  TaggedPiece piece{{++sockets_->sent, 0, 0}, {}};
  const std::size_t last = (std::max<std::size_t>(1, floats.size()) - 1) / kFloatFrames;
  piece.tag.pieces = static_cast<std::uint32_t>(last) + 1;
  piece.add(zmq::message_t(header.data(), header.size()));
  piece.add(zmq::message_t(message.text.data(), message.text.size()));
  piece.add(zmq::message_t(message.ids.data(), message.ids.size() * sizeof(std::int64_t)));
  for (std::uint32_t i = 0; i < piece.tag.pieces; ++i) {
    for (std::size_t k = i * kFloatFrames; k < std::min(floats.size(), (i + 1) * kFloatFrames);
         ++k) {
      piece.add(frame_of(floats[k]));
    }
    to.bytes += piece.bytes;
    Tag next = piece.tag;
    ++next.piece;
    to.pieces.push_back(std::exchange(piece, TaggedPiece{next, {}}));
  }
  ++to.messages;
  pump();
}

void MessageSocket::pump() {
  for (auto at = sockets_->outgoing.begin(); at != sockets_->outgoing.end();) {
    Outgoing& to = at->second;
    bool is_gone = false;
    try {
      while (!to.pieces.empty() && to.send_one()) {
      }
    } catch (const zmq::error_t& error) {
      if (error.num() != EHOSTUNREACH && error.num() != EAGAIN) throw;
      is_gone = error.num() == EHOSTUNREACH;  // when it is back it repeats its request
    }
    at = is_gone || to.pieces.empty() ? sockets_->outgoing.erase(at) : ++at;
  }
}

void MessageSocket::wake() {
  const std::uint64_t one = 1;
  (void)!::write(sockets_->bell, &one, sizeof one);
}

std::vector<Message> MessageSocket::receive(double seconds) {
  const double end = steady_seconds() + seconds;
  std::vector<Message> out;
  for (std::uint64_t rings = 0;;) {
    pump();
    double most = std::max(0.0, end - steady_seconds());
    const auto events = [this](const std::string& peer) {
      return static_cast<short>(sockets_->outgoing.contains(peer) ? ZMQ_POLLIN | ZMQ_POLLOUT
                                                                  : ZMQ_POLLIN);
    };
    std::vector<zmq::pollitem_t> items{{nullptr, sockets_->bell, ZMQ_POLLIN, 0}};
    if (sockets_->router) {
      items.push_back({sockets_->router.handle(), 0, ZMQ_POLLIN, 0});
      items.push_back({sockets_->monitor.handle(), 0, ZMQ_POLLIN, 0});
    }
    for (auto& [to, dealer] : sockets_->dealers) {
      items.push_back({dealer.handle(), 0, events(identity_of({to.first, to.second, 0})), 0});
    }
    // A ROUTER does not report which of its peers it can send to: try again soon.
    const bool blocked = std::ranges::any_of(
        sockets_->outgoing, [](const auto& one) { return !one.second.identity.empty(); });
    if (blocked) most = std::min(most, kRetry);
    try {
      zmq::poll(items, std::chrono::milliseconds(std::lround(most * 1000.0)));
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
    }
    const bool rung = ::read(sockets_->bell, &rings, sizeof rings) > 0;
    if (sockets_->router) {
      read(&sockets_->router, true, out);
      read_monitor();
    }
    for (auto& [to, dealer] : sockets_->dealers) read(&dealer, false, out);
    if (!out.empty() || rung || steady_seconds() >= end) break;
  }
  pump();
  std::erase_if(sockets_->incoming, [now = steady_seconds()](const auto& one) {
    return now - one.second.since > kStale;
  });
  return out;
}

void MessageSocket::read(void* which, bool router, std::vector<Message>& out) {
  zmq::socket_t& socket = *static_cast<zmq::socket_t*>(which);
  const std::size_t most = kFloatFrames + (router ? 5 : 4);  // the name, tag, header, text, ids
  // At most so much at a time, so that one endless sender does not keep the others waiting.
  for (std::size_t bytes = 0, count = 0; count < 256 && bytes < kMostAtOnce; ++count) {
    std::vector<Frame> frames;
    std::size_t read = 0;
    for (bool more = true; more; ++read) {
      auto frame = std::make_shared<zmq::message_t>();
      if (!socket.recv(*frame, read == 0 ? zmq::recv_flags::dontwait : zmq::recv_flags::none)) {
        return;
      }
      more = frame->more();
      if (read >= most) continue;  // too many frames: read the rest of them away
      const std::span content(static_cast<const std::byte*>(frame->data()), frame->size());
      bytes += content.size();
      frames.push_back({std::move(frame), content});
    }
    std::string sender = std::to_string(std::bit_cast<std::uintptr_t>(which));
    if (router) {
      sender.assign(reinterpret_cast<const char*>(frames[0].bytes.data()), frames[0].bytes.size());
      frames.erase(frames.begin());
    }
    std::string why = std::to_string(read) + " frames";
    if (read <= most && frames.size() >= 2 && take(sender, frames, router, out, why)) continue;
    sockets_->incoming.erase(sender);
    complain("bytes of '" + sender + "' are no message of this job (" + why +
             "): they are ignored");
  }
}

// Takes a piece. Returns false, with the reason in `why`, if it is none, or ends no valid message.
bool MessageSocket::take(const std::string& sender, std::span<const Frame> frames, bool router,
                         std::vector<Message>& out, std::string& why) {
  Tag tag;
  why = "a piece without a number";
  if (frames[0].bytes.size() != sizeof tag) return false;
  std::memcpy(&tag, frames[0].bytes.data(), sizeof tag);
  const auto from = address_of(sender);
  why = "the name of no task";
  if (router && !from) return false;
  Incoming& all = sockets_->incoming[sender];
  if (tag.piece == 0) {
    all = {};
    all.next = {tag.message, 0, tag.pieces};
  }
  why = "a message of too many pieces";
  if (tag.pieces > kMostPieces) return false;
  // The rest of a message senderse first pieces were lost with an earlier connection.
  if (tag.message != all.next.message || tag.piece != all.next.piece) return true;
  ++all.next.piece;
  all.since = steady_seconds();
  for (const Frame& one : frames.subspan(1)) {
    all.bytes += one.bytes.size();
    all.frames.push_back(one);
  }
  why = "more bytes than it may send";
  if (router && options_.most_bytes && all.bytes > options_.most_bytes(*from)) return false;
  if (all.next.piece < all.next.pieces) return true;
  auto message = message_of(all.frames, &why);
  if (!message) return false;
  why = "the name of another task";
  if (router && *from != message->from) return false;
  out.push_back(std::move(*message));
  sockets_->incoming.erase(sender);
  return true;
}

void MessageSocket::read_monitor() {
  zmq::message_t event;
  zmq::message_t peer;
  while (sockets_->monitor.recv(event, zmq::recv_flags::dontwait) &&
         sockets_->monitor.recv(peer, zmq::recv_flags::none)) {
    complain(
        "a stranger has connected that does not speak as a task of this job, or lacks its "
        "secret: it is refused");
  }
}

void MessageSocket::complain(const std::string& what) {
  ++complaints_;
  if (!options_.say || (complaints_ > kComplaints && complaints_ % 1000 != 0)) return;
  options_.say(
      text_of(options_.self) + ": " + what +
      (complaints_ == kComplaints ? " (from now on one line for a thousand of these)" : ""));
}

}  // namespace ronde::trainer::server
