// SPDX-License-Identifier: Apache-2.0
// The connections between the first ranks of hosts, and the transfer that is timed.
#include "examples/perf/contenders/contender.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "examples/perf/contenders/agreement.h"
#include "examples/perf/options/options.h"

namespace ronde::perf {

namespace {

constexpr int kPatienceMs = 10'000;  // for a connection, or for a line on which nothing moves

// Thread safety: belongs to one thread.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("--against line: " + what + ": " + std::strerror(errno));
}

// What each rank sends to the others: the first rank of a host its addresses, the others nothing.
constexpr std::size_t kAddresses = 6;
struct Contact {
  std::array<std::uint32_t, kAddresses> addresses{};  // IPv4, in network order
  std::uint16_t port = 0;
  std::uint16_t is_first = 0;
};

std::array<std::uint32_t, kAddresses> own_addresses() {
  std::array<std::uint32_t, kAddresses> found{};
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) fail("asking for the interfaces");
  std::size_t count = 0;
  for (const ifaddrs* each = list; each != nullptr && count < found.size(); each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    sockaddr_in address{};
    std::memcpy(&address, each->ifa_addr, sizeof(address));
    found.at(count++) = address.sin_addr.s_addr;
  }
  ::freeifaddrs(list);
  return found;
}

void prepare(const Socket& socket) {
  const int one = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

// Waits until the socket is ready for one of `events`.
bool await(const Socket& socket, short events) {
  pollfd watched{socket.get(), events, 0};
  return ::poll(&watched, 1, kPatienceMs) > 0;
}

Socket listen_here(Contact& contact) {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (socket.get() < 0 || ::bind(socket.get(), generic, length) != 0 ||
      ::listen(socket.get(), 16) != 0 || ::getsockname(socket.get(), generic, &length) != 0) {
    fail("listening");
  }
  contact.port = address.sin_port;
  return socket;
}

Socket connect_to(const Contact& contact) {
  for (const std::uint32_t host : contact.addresses) {
    if (host == 0) break;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = host;
    address.sin_port = contact.port;
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int error =
        ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
    if (error != 0 && (errno != EINPROGRESS || !await(socket, POLLOUT))) continue;
    int result = 0;
    socklen_t length = sizeof(result);
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &result, &length);
    errno = result;
    if (result == 0) return socket;
  }
  fail("connecting to the next host");
}

class LineContender final : public Contender {
 public:
  LineContender(std::size_t hosts, Socket to_next, Socket from_previous)
      : hosts_(hosts), to_next_(std::move(to_next)), from_previous_(std::move(from_previous)) {}

  [[nodiscard]] std::string name() const override { return "line"; }
  [[nodiscard]] std::string lacks(const Case& shape) const override {
    const bool reduces_whole = shape.is_whole() && shape.row().reduces != 0;
    return reduces_whole ? "" : std::string(name_of(shape.operation));
  }
  [[nodiscard]] bool copies() const override { return true; }
  void prepare(const Task& task) override {
    task_ = task;
    total_ = task.shape.input_elements() * task.shape.dtype->size;
    bytes_ = 2 * (hosts_ - 1) * total_ / hosts_;
    received_.resize(kChunk);
  }
  void run() override {
    if (to_next_.get() < 0) return;
    std::size_t to_send = bytes_;
    std::size_t to_receive = bytes_;
    while (to_send > 0 || to_receive > 0) {
      const bool sent = send_some(to_send);
      const bool received = receive_some(to_receive);
      if (!sent && !received) await_line(to_send > 0, to_receive > 0);
    }
  }
  // Nothing that was transferred is stored: the vector is unchanged.
  [[nodiscard]] std::byte* result() override {
    std::memcpy(task_.scratch, task_.input, total_);
    return task_.scratch;
  }

 private:
  static constexpr std::size_t kChunk = std::size_t{256} << 10;

  bool send_some(std::size_t& left) {
    if (left == 0) return false;
    // The same bytes are sent again where more travel than the vector has.
    const std::size_t size = std::min({left, total_, kChunk});
    const ssize_t sent = ::send(to_next_.get(), task_.input, size, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) fail("sending");
    if (sent > 0) left -= static_cast<std::size_t>(sent);
    return sent > 0;
  }
  bool receive_some(std::size_t& left) {
    if (left == 0) return false;
    const ssize_t got =
        ::recv(from_previous_.get(), received_.data(), std::min(left, received_.size()), 0);
    if (got == 0) throw std::runtime_error("--against line: the host before this one has gone");
    if (got < 0 && errno != EAGAIN && errno != EINTR) fail("receiving");
    if (got > 0) left -= static_cast<std::size_t>(got);
    return got > 0;
  }
  void await_line(bool sending, bool receiving) {
    std::array<pollfd, 2> watched{
        pollfd{to_next_.get(), static_cast<short>(sending ? POLLOUT : 0), 0},
        pollfd{from_previous_.get(), static_cast<short>(receiving ? POLLIN : 0), 0}};
    if (::poll(watched.data(), watched.size(), kPatienceMs) > 0) return;
    throw std::runtime_error("--against line: nothing has moved between hosts for 10 s");
  }

  std::size_t hosts_;
  Socket to_next_;  // on the first rank of a host
  Socket from_previous_;
  Task task_;
  std::size_t total_ = 0;
  std::size_t bytes_ = 0;
  std::vector<std::byte> received_;
};

}  // namespace

std::unique_ptr<Contender> make_line(Engine& engine) {
  Contact mine;
  Socket listener;
  const bool first = engine.local_rank() == 0;
  on_every_rank(engine, [&] {
    if (!first) return;
    mine.is_first = 1;
    mine.addresses = own_addresses();
    listener = listen_here(mine);
  });
  std::vector<std::uint8_t> bytes(sizeof(mine));
  std::memcpy(bytes.data(), &mine, sizeof(mine));
  const std::vector<std::uint8_t> all =
      engine.allgather_blocking("ronde-perf/line", std::span<const std::uint8_t>(bytes));
  std::vector<Contact> firsts;
  std::size_t here = 0;  // this host's place among them
  for (int rank = 0; rank < engine.size(); ++rank) {
    Contact contact;
    std::memcpy(&contact, all.data() + static_cast<std::size_t>(rank) * sizeof(contact),
                sizeof(contact));
    if (contact.is_first == 0) continue;
    if (rank == engine.rank()) here = firsts.size();
    firsts.push_back(contact);
  }
  if (firsts.size() == 1) throw UsageError("--against line needs ranks on several hosts");
  Socket to_next;
  Socket from_previous;
  on_every_rank(engine, [&] {
    if (!first) return;
    to_next = connect_to(firsts[(here + 1) % firsts.size()]);
    prepare(to_next);
    if (!await(listener, POLLIN)) fail("waiting for the host before this one");
    from_previous =
        Socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (from_previous.get() < 0) fail("accepting");
  });
  return std::make_unique<LineContender>(firsts.size(), std::move(to_next),
                                         std::move(from_previous));
}

}  // namespace ronde::perf
