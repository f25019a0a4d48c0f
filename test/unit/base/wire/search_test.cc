// SPDX-License-Identifier: Apache-2.0
// A search over several addresses, behind which are doors that the test keeps.
#include "base/wire/search.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "test/support/strangers.h"

namespace ronde::base {
namespace {

using strangers::bytes_of;

// A door with this secret at a port of 127.0.0.1.
struct SearchedDoor {
  explicit SearchedDoor(std::string_view secret)
      : door({{&listener},
              [](const FileDescriptor& from) { return accept_over_tcp(from, {}); },
              bytes_of(secret),
              "the secret",
              "in this test",
              1}) {}
  void step() { strangers::step(door, SteadyClock().now(), guests); }

  FileDescriptor listener = std::move(*listen_on({*parse_address("127.0.0.1"), 0}, 0));
  Door door;
  std::vector<Guest> guests;
};

Search search_of(const std::vector<SearchedDoor*>& doors) {
  SearchPlan plan;
  for (SearchedDoor* const one : doors) {
    plan.addresses.push_back(SearchPlan::at(*own_end(one->listener), 0, {}));
  }
  plan.secret = bytes_of("ours");
  plan.hello = [] { return bytes_of("rank 3"); };
  return Search(std::move(plan));
}

// Steps all of them until the search is over, for a minute at most.
void step_all(Search& search, const std::vector<SearchedDoor*>& doors) {
  const SteadyClock clock;
  const Instant until = clock.after(std::chrono::minutes(1));
  while (!search.done() && !search.refusal() && clock.now() < until) {
    std::vector<pollfd> entries;
    search.watch(entries);
    (void)::poll(entries.data(), entries.size(), 0);
    search.step(entries, clock.now());
    for (SearchedDoor* const one : doors) one->step();
  }
}

TEST(Search, GoesOnWhereOneOfSeveralHasAnotherSecret) {
  for (const bool first : {true, false}) {
    SearchedDoor other("theirs");
    SearchedDoor right("ours");
    const std::vector<SearchedDoor*> doors =
        first ? std::vector{&other, &right} : std::vector{&right, &other};
    Search search = search_of(doors);
    step_all(search, doors);
    ASSERT_TRUE(search.done()) << search.tried();
    EXPECT_FALSE(search.refusal());
    right.step();
    ASSERT_EQ(right.guests.size(), 1U);
    EXPECT_EQ(right.guests.front().hello, bytes_of("rank 3"));
    EXPECT_EQ(search.take()->address, text_of(*own_end(right.listener)));
  }
}

TEST(Search, IsOverWhereAllHaveAnotherSecret) {
  SearchedDoor one("theirs");
  SearchedDoor another("nobody's");
  const std::vector<SearchedDoor*> doors{&one, &another};
  Search search = search_of(doors);
  step_all(search, doors);
  EXPECT_FALSE(search.done());
  EXPECT_EQ(search.refusal(), HelloReader::Got::kSecret);
  EXPECT_NE(search.tried().find("another job answers there"), std::string::npos);
}

}  // namespace
}  // namespace ronde::base
