// SPDX-License-Identifier: Apache-2.0
// Joining an MPI that the program has started and finalises: the tests run in the order in which
// they are written here, from MPI_Init_thread to MPI_Finalize.
#include <gtest/gtest.h>
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "test/mpi/mpi_plugin.h"

namespace ronde::collectives {
namespace {

using base::Code;
using testing::MpiPart;

// As <ronde/mpi.h> does it.
ProgramCommunicator program_communicator(MPI_Comm communicator) {
#if defined(OPEN_MPI)
  ProgramCommunicator program{MpiFamily::kOpenMpi, 0};
#else
  ProgramCommunicator program{MpiFamily::kMpich, 0};
#endif
  std::memcpy(&program.handle, &communicator, sizeof communicator);
  return program;
}

class MpiSessionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  }
  void SetUp() override {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  [[nodiscard]] base::Instant deadline() const { return clock_.after(std::chrono::seconds(60)); }

  base::SteadyClock clock_;
  int rank_ = 0;
  int size_ = 0;
};

TEST_F(MpiSessionTest, JoinsACommunicatorOfTheProgram) {
  ASSERT_TRUE(process_mpi().has_value());
  EXPECT_TRUE(process_mpi()->started);
  // Even and odd ranks apart, each group upside down.
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank_ % 2, -rank_, &half);
  int expected_rank = -1;
  int expected_size = -1;
  MPI_Comm_rank(half, &expected_rank);
  MPI_Comm_size(half, &expected_size);
  const auto program = program_communicator(half);
  auto opened = MpiPart::open(&program, clock_, deadline());
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ((*opened)->rank(), expected_rank);
  EXPECT_EQ((*opened)->size(), expected_size);
  EXPECT_EQ((*opened)->meeting().ranks_on_this_host().size(),
            static_cast<std::size_t>(expected_size));
  // The program may free its own; Ronde has a duplicate.
  MPI_Comm_free(&half);
  const auto mine = std::vector<std::byte>(1, static_cast<std::byte>(rank_));
  const auto all = (*opened)->allgather(mine, clock_, deadline());
  ASSERT_TRUE(all.ok());
  for (const auto& part : *all) EXPECT_EQ(std::to_integer<int>(part[0]) % 2, rank_ % 2);
  EXPECT_TRUE((*opened)->close().ok());
}

// Waiting ranks send notices over the program's communicator after half of the time. Ronde must
// receive all of them itself, so that the program's receive of any tag gets the program's message.
TEST_F(MpiSessionTest, ALateRankIsWaitedForAndTheProgramsMessagesStayItsOwn) {
  using std::chrono::milliseconds;
  constexpr int kTag = 5;
  const int next = (rank_ + 1) % size_;
  MPI_Request sending = MPI_REQUEST_NULL;
  MPI_Isend(&rank_, 1, MPI_INT, next, kTag, MPI_COMM_WORLD, &sending);
  if (rank_ == 0) std::this_thread::sleep_for(milliseconds(2500));
  auto opened = MpiPart::open(nullptr, clock_, clock_.after(milliseconds(4000)));
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  int left = -1;
  MPI_Status status;
  MPI_Recv(&left, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
  EXPECT_EQ(status.MPI_TAG, kTag);
  EXPECT_EQ(left, (rank_ + size_ - 1) % size_);
  MPI_Wait(&sending, MPI_STATUS_IGNORE);
  MPI_Barrier(MPI_COMM_WORLD);
  int more = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &more, MPI_STATUS_IGNORE);
  EXPECT_EQ(more, 0);
  EXPECT_TRUE((*opened)->close().ok());
}

TEST_F(MpiSessionTest, RefusesNoCommunicator) {
  for (const auto& none : {program_communicator(MPI_COMM_NULL),
                           ProgramCommunicator{program_communicator(MPI_COMM_WORLD).family, 0}}) {
    const auto opened = MpiPart::open(&none, clock_, deadline());
    EXPECT_EQ(opened.status().code(), Code::kInvalidArgument);
    EXPECT_NE(opened.status().message().find("MPI_COMM_NULL"), std::string::npos);
  }
}

// A handle of another MPI would be a wild pointer here, or a number that means nothing.
TEST_F(MpiSessionTest, RefusesAHandleOfAnotherMpi) {
  auto other = program_communicator(MPI_COMM_WORLD);
  other.family = other.family == MpiFamily::kMpich ? MpiFamily::kOpenMpi : MpiFamily::kMpich;
  const auto opened = MpiPart::open(&other, clock_, deadline());
  EXPECT_EQ(opened.status().code(), Code::kInvalidArgument);
  EXPECT_NE(opened.status().message().find("build both with the same MPI"), std::string::npos)
      << opened.status().message();
}

// The ranks of an inter-communicator are two groups, each of which counts from 0.
TEST_F(MpiSessionTest, RefusesAnInterCommunicator) {
  if (size_ == 1) return;  // two groups need two ranks
  MPI_Comm mine = MPI_COMM_NULL;
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank_ % 2, rank_, &mine);
  MPI_Intercomm_create(mine, 0, MPI_COMM_WORLD, 1 - rank_ % 2, 0, &between);
  const auto program = program_communicator(between);
  const auto opened = MpiPart::open(&program, clock_, deadline());
  EXPECT_EQ(opened.status().code(), Code::kInvalidArgument);
  EXPECT_NE(opened.status().message().find("inter-communicator"), std::string::npos);
  MPI_Comm_free(&between);
  MPI_Comm_free(&mine);
}

TEST_F(MpiSessionTest, AbandonedMeansNoMoreCalls) {
  auto opened = MpiPart::open(nullptr, clock_, deadline());
  ASSERT_TRUE(opened.ok());
  const auto transport = (*opened)->transport();
  std::vector<std::byte> byte(1);
  const auto request = transport->receive(rank_, 0, byte);  // never answered
  ASSERT_TRUE(request.ok());
  (*opened)->abandon();
  EXPECT_EQ(transport->test(*request).status().code(), Code::kTransport);
  EXPECT_EQ(transport->send(rank_, 0, byte).status().code(), Code::kTransport);
  EXPECT_EQ(transport->receive(rank_, 0, byte).status().code(), Code::kTransport);
  EXPECT_EQ((*opened)->allgather(byte, clock_, deadline()).status().code(), Code::kTransport);
  EXPECT_EQ((*opened)->close().code(), Code::kTransport);
  EXPECT_EQ(transport->outstanding(), 1) << "its memory must stay";
}

TEST_F(MpiSessionTest, AForkedChildHasNoPart) {
  auto opened = MpiPart::open(nullptr, clock_, deadline());
  ASSERT_TRUE(opened.ok());
  const auto transport = (*opened)->transport();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::vector<std::byte> byte(1);
    const bool inert =
        transport->send(0, 0, byte).status().code() == Code::kUnsupported &&
        (*opened)->allgather(byte, clock_, deadline()).status().code() == Code::kUnsupported &&
        (*opened)->close().code() == Code::kUnsupported &&
        MpiPart::open(nullptr, clock_, deadline()).status().code() == Code::kUnsupported;
    ::_exit(inert ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE((*opened)->close().ok());
}

TEST_F(MpiSessionTest, EnginesInThreadsShareTheSession) {
  // Collectives start in one order on all ranks: one after another. The traffic is concurrent.
  std::vector<std::unique_ptr<MpiPart>> communicators;
  for (int i = 0; i < 3; ++i) {
    auto opened = MpiPart::open(nullptr, clock_, deadline());
    ASSERT_TRUE(opened.ok());
    communicators.push_back(std::move(*opened));
  }
  std::vector<std::thread> threads;
  for (auto& communicator : communicators) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        const std::vector<std::byte> mine(static_cast<std::size_t>(round % 7 + rank_),
                                          static_cast<std::byte>(rank_));
        const auto all = communicator->allgather(mine, clock_, deadline());
        ASSERT_TRUE(all.ok()) << all.status().to_string();
        for (std::size_t r = 0; r < all->size(); ++r) {
          ASSERT_EQ((*all)[r].size(), static_cast<std::size_t>(round % 7) + r);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (auto& communicator : communicators) EXPECT_TRUE(communicator->close().ok());
}

TEST_F(MpiSessionTest, ARankThatDoesNotTakePartIsADeadline) {
  if (size_ == 1) return;  // there is no other rank to wait for
  MPI_Comm world = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &world);
  auto gathering = MpiPart::open(nullptr, clock_, deadline());
  ASSERT_TRUE(gathering.ok());
  if (rank_ == 0) {
    const auto soon = clock_.after(std::chrono::milliseconds(100));
    const auto program = program_communicator(world);
    const auto opened = MpiPart::open(&program, clock_, soon);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.status().code(), Code::kDeadline);
    EXPECT_NE(opened.status().message().find("RONDE_START_TIMEOUT_SECONDS"), std::string::npos);
    const auto all = (*gathering)->allgather({}, clock_, soon);
    EXPECT_EQ(all.status().code(), Code::kDeadline);
    // Its request may still be written to, so there are no calls after it.
    EXPECT_EQ((*gathering)->allgather({}, clock_, soon).status().code(), Code::kTransport);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank_ != 0) {
    // Now the others join, so that the pending calls of rank 0 finish and MPI can be finalised.
    MPI_Comm duplicate = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm_idup(world, &duplicate, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT_TRUE((*gathering)->allgather({}, clock_, deadline()).ok());
    (*gathering)->abandon();
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_F(MpiSessionTest, NothingIsOpenedAfterFinalize) {
  MPI_Finalize();
  const auto opened = MpiPart::open(nullptr, clock_, deadline());
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(opened.status().message().find("finalised already"), std::string::npos);
}

}  // namespace
}  // namespace ronde::collectives
