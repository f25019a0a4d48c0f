// SPDX-License-Identifier: Apache-2.0
// Without mpirun no build wants MPI, and under mpirun a build without MPI fails with the reason.
// The test runs in every build, so it opens no session; test/mpi has the rest.
#include "collectives/transport/mpi/session.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace ronde::collectives {
namespace {

TEST(MpiSession, IsWantedOnlyInAJob) {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"}) {
    ::unsetenv(variable);
  }
  const auto alone = MpiSession::wanted();
  ASSERT_TRUE(alone.ok());
  EXPECT_FALSE(*alone);

  ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  const auto in_job = MpiSession::wanted();
  if (in_job.ok()) {
    EXPECT_TRUE(*in_job);
  } else {
    EXPECT_EQ(in_job.status().code(), base::Code::kUnsupported);
    EXPECT_NE(in_job.status().message().find("has no MPI"), std::string::npos);
  }
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
}

}  // namespace
}  // namespace ronde::collectives
