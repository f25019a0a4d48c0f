// SPDX-License-Identifier: Apache-2.0
// Which transport carries bytes, and when a user is told that Open MPI yields.
#include "runtime/job/transport_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronde::runtime {
namespace {

using testing::HasSubstr;
using Lines = std::vector<std::string>;

TEST(TransportChoice, AutoIsMpiWhereMpiStartedTheJob) {
  EXPECT_EQ(choose_transport("auto", "mpi").name, "mpi");
  EXPECT_EQ(choose_transport("auto", "mpi").reason, "MPI started the job");
  EXPECT_EQ(choose_transport("auto", "").name, "ucx");
  EXPECT_EQ(choose_transport("auto", "").reason, "MPI did not start the job");
}

TEST(TransportChoice, TheSettingGoesBeforeIt) {
  EXPECT_EQ(choose_transport("ucx", "mpi").name, "ucx");
  EXPECT_EQ(choose_transport("mpi", "").name, "mpi");
  EXPECT_EQ(choose_transport("ucx", "mpi").reason, "RONDE_TRANSPORT=ucx");
}

TEST(TransportChoice, AUserIsToldThatOpenMpiYields) {
  const Lines crowded{"OMPI_MCA_mpi_oversubscribe=1"};
  const Lines told{"OMPI_MCA_mpi_yield_when_idle=1", "OMPI_MCA_mpi_oversubscribe=0"};
  const Lines spins{"OMPI_MCA_mpi_yield_when_idle=0", "OMPI_MCA_mpi_oversubscribe=1"};
  EXPECT_THAT(yielding_note(crowded, "mpi", 2), HasSubstr("(more ranks than cores)"));
  EXPECT_THAT(yielding_note(crowded, "mpi", 2), HasSubstr("RONDE_TRANSPORT=ucx, where"));
  EXPECT_THAT(yielding_note(told, "mpi", 2), HasSubstr("(mpi_yield_when_idle)"));
  EXPECT_EQ(yielding_note(spins, "mpi", 2), "");
  EXPECT_EQ(yielding_note({}, "mpi", 2), "");
  EXPECT_EQ(yielding_note(crowded, "mpi", 1), "") << "nothing is sent";
  EXPECT_EQ(yielding_note(crowded, "ucx", 2), "");
}

}  // namespace
}  // namespace ronde::runtime
