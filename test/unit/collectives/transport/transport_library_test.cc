// SPDX-License-Identifier: Apache-2.0
// What is taken for a transport's plug-in, what is refused, and how its errors come back.
#include "collectives/transport/transport_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "collectives/transport/plugin_status.h"
#include "collectives/transport/transport.h"

namespace ronde::collectives {
namespace {

using base::Code;
using base::Status;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Where the build put the plug-ins of bad_transport.c.
const std::string kFolder = RONDE_TEST_TRANSPORTS;

std::string refusal(const std::string& name, const std::string& folder = kFolder) {
  const auto library = TransportLibrary::load(name, folder);
  EXPECT_FALSE(library.ok()) << name << " was taken for a plug-in";
  const std::string text = library.ok() ? "" : library.status().message();
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  return text;
}

TEST(TransportLibrary, TheFolderThatIsGivenIsTheOnlyPlace) {
  EXPECT_THAT(
      refusal("good", "/nowhere"),
      AllOf(HasSubstr("/nowhere/libronde_good.so cannot be loaded"), HasSubstr("No such file")));
}

TEST(TransportLibrary, LooksBesideItselfAndThenWhereTheLoaderLooks) {
  EXPECT_THAT(refusal("nobody", ""), AllOf(HasSubstr("the plug-in libronde_nobody.so cannot be"),
                                           HasSubstr("No such file")));
}

TEST(TransportLibrary, RefusesWhatIsNoneOfThisVersion) {
  EXPECT_THAT(refusal("entry"), HasSubstr("it has no ronde_transport_entry"));
  EXPECT_THAT(refusal("version"),
              AllOf(HasSubstr("'version' is of version 7 of the interface, and this Ronde of 1"),
                    HasSubstr("install the plug-in that came with this libronde.so")));
  EXPECT_THAT(refusal("table"), HasSubstr("has 16 bytes of "));
  EXPECT_THAT(refusal("function"), HasSubstr("'function' has no function receive"));
  EXPECT_THAT(refusal("meeting"), HasSubstr("'meeting' has no function meeting.leave"));
  EXPECT_THAT(refusal("name"), HasSubstr("it calls itself 'another'"));
}

TEST(TransportLibrary, ErrorsOfAPluginKeepCodeRankAndText) {
  for (const Code code :
       {Code::kTransport, Code::kUnsupported, Code::kInvalidArgument, Code::kPeerFailed,
        Code::kDeadline, Code::kClosed, Code::kOutOfMemory, Code::kSystem}) {
    auto error = empty_transport_error();
    const auto answer = answer_of(Status::error(code, "sending\nfailed").with_rank(3), &error);
    const Status back = status_of(answer, error);
    EXPECT_EQ(back.code(), code);
    EXPECT_EQ(back.message(), "sending\\nfailed") << "errors are one line";
    EXPECT_EQ(back.rank(), 3);
  }
  auto error = empty_transport_error();
  EXPECT_TRUE(status_of(answer_of(Status(), &error), error).ok());
  EXPECT_TRUE(status_of(RONDE_TRANSPORT_PENDING, error).ok());
  const auto answer = answer_of(Status::error(Code::kInternal, std::string(5000, 'x')), &error);
  EXPECT_EQ(status_of(answer, error).message(), std::string(sizeof error.text - 1, 'x'));
  EXPECT_EQ(status_of(answer, error).code(), Code::kTransport);
  EXPECT_FALSE(status_of(answer, error).rank().has_value());
}

TEST(Transport, AnEndThatCannotBeOpenedIsAnError) {
  const auto library = TransportLibrary::load("good", kFolder);
  ASSERT_TRUE(library.ok()) << library.status().message();
  EXPECT_EQ(library->title(), "GOOD");
  const auto opened = Transport::open(*library, {});
  EXPECT_EQ(opened.status().code(), Code::kUnsupported);
  EXPECT_EQ(opened.status().message(), "nobody has built this transport yet");
}

// An engine could neither sleep nor poll.
TEST(Transport, ADescriptorWithoutArmAndProgressIsRefused) {
  const auto library = TransportLibrary::load("descriptor", kFolder);
  ASSERT_TRUE(library.ok()) << library.status().message();
  const auto opened = Transport::open(*library, {});
  EXPECT_EQ(opened.status().code(), Code::kUnsupported);
  EXPECT_THAT(opened.status().message(),
              AllOf(HasSubstr("libronde_descriptor.so is not used"),
                    HasSubstr("a descriptor to sleep on, but no function arm or progress")));
}

}  // namespace
}  // namespace ronde::collectives
