// SPDX-License-Identifier: Apache-2.0
// Ronde inside a program that has started MPI itself, over its world and over a communicator that
// it made.
#include <gtest/gtest.h>
#include <mpi.h>

#include <span>
#include <string>
#include <vector>

#include <ronde/mpi.h>
#include <ronde/ronde.hpp>

namespace {

class HostProgram : public ::testing::Environment {
 public:
  void SetUp() override {
    int provided = MPI_THREAD_SINGLE;
    ASSERT_EQ(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), MPI_SUCCESS);
    ASSERT_GE(provided, MPI_THREAD_SERIALIZED);
  }
  // Ronde must have left MPI to the program that started it.
  void TearDown() override {
    int finalized = 1;
    MPI_Finalized(&finalized);
    EXPECT_EQ(finalized, 0);
    MPI_Finalize();
  }
};

const auto* const kHostProgram = ::testing::AddGlobalTestEnvironment(new HostProgram);

int world_rank() {
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

TEST(MpiHostProgram, JoinsTheWorld) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  ronde::Engine engine;
  EXPECT_EQ(engine.size(), size);
  EXPECT_EQ(engine.rank(), world_rank());
  std::vector<float> data(1000, 1.0F);
  engine.allreduce_blocking("x", std::span(data), ronde::sum);
  EXPECT_EQ(data[999], static_cast<float>(size));
}

TEST(MpiHostProgram, JoinsACommunicatorWithOtherRanks) {
  // Odd and even ranks are two jobs, numbered backwards.
  MPI_Comm half = MPI_COMM_NULL;
  ASSERT_EQ(MPI_Comm_split(MPI_COMM_WORLD, world_rank() % 2, -world_rank(), &half), MPI_SUCCESS);
  int rank = -1;
  int size = 0;
  MPI_Comm_rank(half, &rank);
  MPI_Comm_size(half, &size);
  {
    ronde::Engine engine = ronde::mpi::open(half);
    EXPECT_EQ(engine.rank(), rank);
    EXPECT_EQ(engine.size(), size);
    std::vector<int> data{world_rank()};
    engine.broadcast_blocking("root", std::span(data), 0);
    int first = world_rank();
    MPI_Bcast(&first, 1, MPI_INT, 0, half);
    EXPECT_EQ(data[0], first);
  }
  MPI_Comm_free(&half);
}

// What an engine cannot be opened over is refused in words.
TEST(MpiHostProgram, OtherCommunicatorsAreRefused) {
  const auto text_of = [](const ronde_engine_options& options) -> std::string {
    try {
      ronde::Engine engine(options);
    } catch (const ronde::Error& error) {
      EXPECT_EQ(error.status(), RONDE_INVALID_ARGUMENT);
      return error.what();
    }
    return "accepted";
  };
  ronde_engine_options options;
  ronde_engine_options_init(&options);
  ronde_engine_options_set_communicator(&options, MPI_COMM_NULL);
  EXPECT_NE(text_of(options).find("MPI_COMM_NULL"), std::string::npos);
  ronde_engine_options_set_communicator(&options, MPI_COMM_WORLD);
  options.mpi_family = RONDE_MPI_FAMILY == RONDE_MPI_MPICH ? RONDE_MPI_OPEN_MPI : RONDE_MPI_MPICH;
  EXPECT_NE(text_of(options).find("build both with the same MPI"), std::string::npos);
  options.mpi_family = 77;
  EXPECT_NE(text_of(options).find("an unknown MPI (77)"), std::string::npos);
  options.mpi_family = 0;
  EXPECT_NE(text_of(options).find("ronde_engine_options_set_communicator"), std::string::npos);
}

TEST(MpiHostProgram, TheProgramsOwnMessagesAreNotTouched) {
  ronde::Engine engine;
  std::vector<float> data(100000, 1.0F);
  ronde::Work work = engine.allreduce("x", std::span(data), ronde::sum);
  work.wait();
  int sum = 0;
  const int one = 1;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT_EQ(sum, engine.size());
}

}  // namespace
