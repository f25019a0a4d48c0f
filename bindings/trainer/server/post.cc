// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/post.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <utility>
#include <zmq.hpp>

#include "bindings/trainer/server/encoding.h"
#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

namespace {

constexpr const char* kMonitor = "inproc://monitor";
constexpr std::size_t kMostFrames = std::size_t{1} << 16U;  // 64 GiB of floats
constexpr std::uint64_t kComplaints = 10;  // said one by one; then one of a thousand

// ZeroMQ's form of "host:port". A name of this host cannot be bound, so that all of its addresses
// are; the keys keep strangers out.
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

// Lets go of what a message was made of, once it is sent. ZeroMQ calls it on a thread of its own.
void release(void* /*data*/, void* owner) {
  delete static_cast<std::shared_ptr<const void>*>(owner);
}

zmq::message_t frame_of(const Floats::Part& floats) {
  auto owner = std::make_unique<std::shared_ptr<const void>>(floats.owner);
  // ZeroMQ takes no const, and writes nothing. It calls nobody where it throws.
  zmq::message_t frame(const_cast<float*>(floats.values.data()), floats.values.size_bytes(),
                       release, owner.get());
  static_cast<void>(owner.release());  // NOLINT(bugprone-unused-return-value): release() has it now
  return frame;
}

// What both ends of a connection are set to. A peer that was cut off is forgotten by the kernel, as
// ZeroMQ's own heartbeats abort (4.3.4: `!_io_error`) where one is due on a connection whose input
// is stopped, since much waits or the socket is being closed, and whose other end has just gone.
void set_up(zmq::socket_t& socket, const std::string& address, const PostOptions& options) {
  socket.set(zmq::sockopt::ipv6, address.starts_with('['));
  socket.set(zmq::sockopt::sndhwm, options.waiting);
  socket.set(zmq::sockopt::rcvhwm, options.waiting);
  socket.set(zmq::sockopt::maxmsgsize, options.frame_bytes);
  socket.set(zmq::sockopt::linger, 2000);
  socket.set(zmq::sockopt::handshake_ivl, 5000);
  socket.set(zmq::sockopt::tcp_keepalive, 1);  // after 15 s without a sign, 5 more, 3 s apart
  socket.set(zmq::sockopt::tcp_keepalive_idle, 15);
  socket.set(zmq::sockopt::tcp_keepalive_intvl, 3);
  socket.set(zmq::sockopt::tcp_keepalive_cnt, 5);
  socket.set(zmq::sockopt::tcp_maxrt, 30'000);  // milliseconds in which nothing sent is confirmed
}

zmq::send_flags more_if(bool more) {
  return more ? zmq::send_flags::sndmore : zmq::send_flags::none;
}

// Who listens at a socket in a folder, as long as this object lives: ZeroMQ would take its name from
// a process that listens there, and leaves it behind.
class Lock {
 public:
  Lock() = default;
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {
    if (file_ < 0) return;
    ::unlink(path_.c_str());
    ::unlink(lock_.c_str());
    ::close(file_);
  }

  // False, with errno set: another process has it.
  bool take(const std::string& path) {
    path_ = path;
    lock_ = path + ".lock";
    while (true) {
      const int file = ::open(lock_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
      if (file < 0) return false;
      struct stat held {};
      struct stat named {};
      if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
        errno = errno == EWOULDBLOCK ? EADDRINUSE : errno;
        const int error = errno;
        ::close(file);
        errno = error;
        return false;
      }
      // The one before may have removed it since it was opened.
      if (::fstat(file, &held) == 0 && ::stat(lock_.c_str(), &named) == 0 &&
          held.st_ino == named.st_ino) {
        file_ = file;
        return true;
      }
      ::close(file);
    }
  }

 private:
  std::string path_;
  std::string lock_;
  int file_ = -1;
};

}  // namespace

struct Post::Sockets {
  Lock lock;  // until ZeroMQ has let go of everything
  zmq::context_t context{1};
  zmq::socket_t router;
  zmq::socket_t monitor;
  std::map<std::pair<Role, std::uint32_t>, zmq::socket_t> dealers;
  std::set<std::string> barred;
  int bell = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

  ~Sockets() {
    if (bell >= 0) ::close(bell);
  }
};

Post::Post(PostOptions options)
    : options_(std::move(options)), sockets_(std::make_unique<Sockets>()) {}

Post::~Post() = default;

void Post::listen(const std::string& address) {
  zmq::socket_t& router = sockets_->router;
  router = zmq::socket_t(sockets_->context, zmq::socket_type::router);
  router.set(zmq::sockopt::router_mandatory, true);
  // One that connects again before the end of its first connection is seen keeps its name: else
  // ZeroMQ takes the first frame that it then sends for its name, and nothing of it is understood.
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

void Post::connect(const Address& to, const std::string& address) {
  zmq::socket_t dealer(sockets_->context, zmq::socket_type::dealer);
  dealer.set(zmq::sockopt::routing_id, identity_of(options_.self));
  set_up(dealer, address, options_);
  dealer.set(zmq::sockopt::reconnect_ivl, 50);
  dealer.set(zmq::sockopt::reconnect_ivl_max, 1000);
  // What waits for a server that is not there is sent again anyway.
  dealer.set(zmq::sockopt::immediate, true);
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

void Post::send(const Message& message) {
  const auto found = sockets_->dealers.find({message.to.role, message.to.index});
  const bool by_router = found == sockets_->dealers.end();
  zmq::socket_t& socket = by_router ? sockets_->router : found->second;
  if (!socket) return;
  const std::string identity = identity_of(message.to);
  if (by_router && sockets_->barred.contains(identity)) return;
  const Header header = header_of(message);
  constexpr auto kMore = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
  try {
    if (by_router && !socket.send(zmq::buffer(identity), kMore)) {
      // Signs of life pile up behind large answers on a slow line; only answers were asked for.
      if (message.kind == Kind::kBeatBack) return;
      sockets_->barred.insert(identity);
      complain(text_of(message.to) + " does not read what it has asked for: it is dropped");
      return;
    }
    if (!socket.send(zmq::buffer(header), kMore)) return;  // full: it is sent again
    (void)socket.send(zmq::buffer(message.text), zmq::send_flags::sndmore);
    const auto floats = float_frames_of(message);
    (void)socket.send(zmq::buffer(message.ids), more_if(!floats.empty()));
    for (std::size_t i = 0; i < floats.size(); ++i) {
      (void)socket.send(frame_of(floats[i]), more_if(i + 1 < floats.size()));
    }
  } catch (const zmq::error_t& error) {
    // EHOSTUNREACH: it is gone; it asks again when it is back.
    if (error.num() != EHOSTUNREACH && error.num() != EAGAIN) throw;
  }
}

void Post::wake() {
  const std::uint64_t one = 1;
  (void)!::write(sockets_->bell, &one, sizeof one);
}

std::vector<Message> Post::receive(double seconds) {
  std::vector<zmq::pollitem_t> items{{nullptr, sockets_->bell, ZMQ_POLLIN, 0}};
  if (sockets_->router) {
    items.push_back({sockets_->router.handle(), 0, ZMQ_POLLIN, 0});
    items.push_back({sockets_->monitor.handle(), 0, ZMQ_POLLIN, 0});
  }
  for (auto& [to, dealer] : sockets_->dealers) items.push_back({dealer.handle(), 0, ZMQ_POLLIN, 0});
  try {
    zmq::poll(items, std::chrono::milliseconds(std::max(0L, std::lround(seconds * 1000.0))));
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw;
  }
  std::uint64_t rings = 0;
  (void)!::read(sockets_->bell, &rings, sizeof rings);
  std::vector<Message> out;
  if (sockets_->router) {
    read(&sockets_->router, true, out);
    read_monitor();
  }
  for (auto& [to, dealer] : sockets_->dealers) read(&dealer, false, out);
  return out;
}

void Post::read(void* which, bool router, std::vector<Message>& out) {
  zmq::socket_t& socket = *static_cast<zmq::socket_t*>(which);
  // At most so many at a time, so that one who sends without end keeps nobody out.
  for (int count = 0; count < 64; ++count) {
    std::vector<Frame> frames;
    std::string peer = "an unknown address";
    bool more = true;
    std::size_t read = 0;
    while (more) {
      auto frame = std::make_shared<zmq::message_t>();
      if (!socket.recv(*frame, read == 0 ? zmq::recv_flags::dontwait : zmq::recv_flags::none)) {
        return;
      }
      more = frame->more();
      // More frames than a message has are read away.
      if (++read > kMostFrames) continue;
      if (const char* const text = zmq_msg_gets(frame->handle(), "Peer-Address")) peer = text;
      const std::span bytes(static_cast<const std::byte*>(frame->data()), frame->size());
      frames.push_back({std::move(frame), bytes});
    }
    std::string who;
    if (router && !frames.empty()) {
      who.assign(reinterpret_cast<const char*>(frames[0].bytes.data()), frames[0].bytes.size());
      frames.erase(frames.begin());
      if (sockets_->barred.contains(who)) continue;
    }
    std::string why;
    auto message = message_of(frames, &why);
    if (message && router && address_of(who) != message->from) {
      why = "the name of another task";
      message.reset();
    }
    if (message) {
      out.push_back(std::move(*message));
    } else {
      complain("what came from " + peer + " is no message of this job (" + why +
               "): it is ignored");
    }
  }
}

void Post::read_monitor() {
  while (true) {
    zmq::message_t event;
    zmq::message_t peer;
    if (!sockets_->monitor.recv(event, zmq::recv_flags::dontwait)) return;
    if (!sockets_->monitor.recv(peer, zmq::recv_flags::none)) return;
    complain(
        "a stranger has connected that does not speak as a task of this job, or lacks its "
        "secret: it is refused");
  }
}

void Post::complain(const std::string& what) {
  ++complaints_;
  if (complaints_ > kComplaints && complaints_ % 1000 != 0) return;
  if (!options_.say) return;
  options_.say(
      text_of(options_.self) + ": " + what +
      (complaints_ == kComplaints ? " (from now on one line for a thousand of these)" : ""));
}

}  // namespace ronde::trainer::server
