// SPDX-License-Identifier: Apache-2.0
// The MPI of a process is found without loading one, and another one than the plug-in's is refused.
// In one test, since a library cannot be unloaded for the next.
#include "collectives/transport/process_mpi.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ronde::collectives {
namespace {

using base::Code;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ProcessMpi, IsFoundWhereTheProgramHasLoadedItForItselfAlone) {
  EXPECT_FALSE(process_mpi().has_value()) << "a program without MPI gets none";

  const auto plugin = TransportLibrary::load("good", RONDE_TEST_TRANSPORTS);
  ASSERT_TRUE(plugin.ok()) << plugin.status().message();
  const ProgramCommunicator same{MpiFamily::kOpenMpi, 1};
  const ProgramCommunicator other{MpiFamily::kMpich, 1};
  EXPECT_TRUE(check_mpi(*plugin, nullptr, std::nullopt).ok());
  EXPECT_TRUE(check_mpi(*plugin, &same, std::nullopt).ok());
  const auto header = check_mpi(*plugin, &other, std::nullopt);
  EXPECT_EQ(header.code(), Code::kInvalidArgument);
  EXPECT_THAT(header.message(), AllOf(HasSubstr("mpi.h of MPICH"), HasSubstr("Open MPI v9.9.9"),
                                      HasSubstr("build both with the same MPI")));

  const std::string path = std::string(RONDE_TEST_TRANSPORTS) + "/libmpich_fake.so";
  ASSERT_NE(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), nullptr) << ::dlerror();
  const auto loaded = process_mpi();
  ASSERT_TRUE(loaded.has_value());
  EXPECT_EQ(loaded->library, "MPICH Version: 4.0.2");
  EXPECT_TRUE(loaded->started);
  const auto linked = check_mpi(*plugin, nullptr, loaded);
  EXPECT_EQ(linked.code(), Code::kUnsupported);
  EXPECT_THAT(linked.message(), AllOf(HasSubstr("linked with MPICH Version: 4.0.2, and "),
                                      HasSubstr("libronde_good.so with Open MPI v9.9.9")));
  EXPECT_EQ(linked.message().find('\n'), std::string::npos);
  EXPECT_TRUE(check_mpi(*plugin, &same, ProcessMpi{"Open MPI v4.1.4", true}).ok());
}

}  // namespace
}  // namespace ronde::collectives
