// SPDX-License-Identifier: Apache-2.0
// An outsider's program with a communicator of its own: the odd and the even ranks are two jobs.
#include <mpi.h>

#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include <ronde/mpi.h>
#include <ronde/ronde.hpp>

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  int rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  int failed = 1;
  try {
    ronde::Engine engine = ronde::mpi::open(half);
    std::vector<float> values(1000, 1.0F);
    engine.allreduce_blocking("values", std::span(values), ronde::sum);
    failed = engine.size() == 2 && values[999] == 2.0F ? 0 : 1;
    std::printf("rank %d: %d of 2 ranks\n", rank, engine.size());
    engine.close();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  MPI_Comm_free(&half);
  MPI_Finalize();
  return failed;
}
