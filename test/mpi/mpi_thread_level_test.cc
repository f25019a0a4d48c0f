// SPDX-License-Identifier: Apache-2.0
// A program that started MPI for a single thread is told what to ask for.
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>

#include "collectives/mpi_session.h"

namespace ronde::collectives {
namespace {

TEST(MpiThreadLevel, BelowSerializedIsRefusedInOneLine) {
  int provided = -1;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  ASSERT_EQ(provided, MPI_THREAD_FUNNELED);
  const base::SteadyClock clock;
  const auto opened = MpiSession::open(nullptr, clock, clock.after(std::chrono::seconds(60)));
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), base::Code::kUnsupported);
  EXPECT_EQ(opened.status().message(),
            "the program started MPI with MPI_THREAD_FUNNELED; call MPI_Init_thread with "
            "MPI_THREAD_SERIALIZED or above");
  MPI_Finalize();
}

}  // namespace
}  // namespace ronde::collectives
