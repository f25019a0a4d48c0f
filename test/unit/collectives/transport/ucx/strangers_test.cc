// SPDX-License-Identifier: Apache-2.0
// Whoever connects to UCX's listener and is none of it disturbs no message.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "test/support/transport_contract.h"
#include "test/support/ucx_ends.h"

namespace ronde::collectives::ucx {
namespace {

// A socket that closes with it.
class Stranger {
 public:
  explicit Stranger(const sockaddr_storage& to)
      : fd_(::socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to),
                        to.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)),
              0);
  }
  ~Stranger() { ::close(fd_); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  // The other end may have closed already.
  void say(const std::string& text) const {
    [[maybe_unused]] const auto sent = ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
  }

 private:
  int fd_;
};

TEST(UcxStrangers, CostNothing) {
  const auto ends = ucx_ends(2);
  const auto listeners = listeners_of_this_process();
  ASSERT_GE(listeners.size(), 2U) << "each end listens";
  std::vector<std::unique_ptr<Stranger>> silent;  // until the ends are closed
  const auto disturb = [&] {
    for (const sockaddr_storage& listener : listeners) {
      silent.push_back(std::make_unique<Stranger>(listener));
      silent.push_back(std::make_unique<Stranger>(listener));
      silent.back()->say("abc");  // less than UCX's first word
      for (const std::string& text :
           {std::string(), std::string("x"), std::string("GET / HTTP/1.1\r\n\r\n"),
            std::string(1U << 16, '\xFF'), std::string(1U << 16, '\0')}) {
        const Stranger stranger(listener);
        stranger.say(text);
      }
    }
  };
  disturb();  // before the ends are connected
  const auto exchange = [](Transport& end) {
    TransportContract talk(end);
    for (int round = 0; round < 20; ++round) {
      const auto message = TransportContract::make(0, 1, round, 100'000);
      TransportContract::Message to(message.size());
      const auto send = [&] { EXPECT_TRUE(talk.finish(talk.send(1 - end.rank(), 1, to)).ok()); };
      if (end.rank() == 0) {
        to = message;
        send();
        std::fill(to.begin(), to.end(), std::byte{});
      }
      EXPECT_TRUE(talk.finish(talk.receive(1 - end.rank(), 1, to)).ok());
      EXPECT_EQ(to, message);
      if (end.rank() == 1) send();
    }
  };
  for (int time = 0; time < 2; ++time) {
    std::thread other([&] { exchange(*ends[1]); });
    exchange(*ends[0]);
    other.join();
    disturb();
  }
}

}  // namespace
}  // namespace ronde::collectives::ucx
