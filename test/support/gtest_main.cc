// SPDX-License-Identifier: Apache-2.0
// The main function of every test program. GoogleTest's own one ends with 0 when a case was
// skipped, so ctest would count it as passed; this one ends with 77, which ctest lists as skipped.
// Under mpirun all ranks share one terminal, so ranks other than 0 print failures only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kSkipped = 77;

// Prints failures with the rank on which they happened.
class FailurePrinter : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(const char* rank) : rank_(rank) {}

 private:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.passed()) return;
    const char* file = result.file_name() != nullptr ? result.file_name() : "unknown file";
    std::printf("[rank %s] %s:%d: %s\n", rank_, file, result.line_number(), result.message());
    std::fflush(stdout);
  }

  void OnTestEnd(const testing::TestInfo& info) override {
    if (!info.result()->Failed()) return;
    std::printf("[rank %s] FAILED %s.%s\n", rank_, info.test_suite_name(), info.name());
    std::fflush(stdout);
  }

  const char* rank_;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const bool in_mpi_job = rank != nullptr;
  if (in_mpi_job && std::atoi(rank) != 0) {
    testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(rank));
  }
  if (RUN_ALL_TESTS() != 0) return 1;
  const testing::UnitTest& unit_test = *testing::UnitTest::GetInstance();
  if (unit_test.test_to_run_count() == 0) {
    std::fprintf(stderr, "no test case ran: does the filter name one?\n");
    return 1;
  }
  if (unit_test.skipped_test_count() == 0) return 0;
  if (in_mpi_job) {
    // mpirun forwards the exit code of one rank only, so a skip could hide another rank's failure.
    std::fprintf(stderr, "a test under mpirun must not skip a case\n");
    return 1;
  }
  return kSkipped;
}
