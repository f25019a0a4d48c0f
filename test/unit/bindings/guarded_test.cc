// SPDX-License-Identifier: Apache-2.0
// An exception inside a call of the C ABI becomes a code, and its text is kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "bindings/c/handles.h"

namespace {

using ronde::base::Status;
using ::testing::HasSubstr;

struct GuardedOutcome {
  ronde_status status;
  std::string text;
};

template <typename Body>
GuardedOutcome guarded_outcome_of(const Body& body) {
  ronde_error* error = nullptr;
  const ronde_status status = ronde::bindings::guarded(&error, body);
  GuardedOutcome outcome{status, ronde_error_message(error)};
  ronde_error_release(error);
  // Nobody has to ask for the text.
  EXPECT_EQ(ronde::bindings::guarded(nullptr, body), status);
  return outcome;
}

TEST(Guarded, KeepsTheTextOfEveryException) {
  const GuardedOutcome plain =
      guarded_outcome_of([]() -> Status { throw std::runtime_error("the disk is full"); });
  EXPECT_EQ(plain.status, RONDE_INTERNAL);
  EXPECT_THAT(plain.text, HasSubstr("the disk is full"));

  // What std::thread throws where the limit of processes is reached.
  const GuardedOutcome thread = guarded_outcome_of([]() -> Status {
    throw std::system_error(EAGAIN, std::generic_category(), "starting a thread");
  });
  EXPECT_EQ(thread.status, RONDE_SYSTEM);
  EXPECT_THAT(thread.text, HasSubstr("starting a thread: Resource temporarily unavailable"));

  const GuardedOutcome memory = guarded_outcome_of([]() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(memory.status, RONDE_OUT_OF_MEMORY);
  EXPECT_THAT(memory.text, HasSubstr("out of memory"));

  const GuardedOutcome strange = guarded_outcome_of([]() -> Status { throw 7; });
  EXPECT_EQ(strange.status, RONDE_INTERNAL);
  EXPECT_THAT(strange.text, HasSubstr("no std::exception"));
}

TEST(Guarded, HandsOverAStatus) {
  EXPECT_EQ(guarded_outcome_of([] { return Status(); }).status, RONDE_OK);
  const GuardedOutcome refused =
      guarded_outcome_of([] { return Status::error(ronde::base::Code::kMismatch, "they differ"); });
  EXPECT_EQ(refused.status, RONDE_MISMATCH);
  EXPECT_THAT(refused.text, HasSubstr("they differ"));
}

}  // namespace
