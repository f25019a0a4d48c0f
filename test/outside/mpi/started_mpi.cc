// SPDX-License-Identifier: Apache-2.0
// An outsider's program that starts MPI itself, and opens an engine over all of its ranks.
#include <mpi.h>

#include <cstdio>
#include <exception>

#include <ronde/ronde.hpp>

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  int failed = 1;
  try {
    ronde::Engine engine;
    engine.barrier_blocking();
    std::printf("%d rank\n", engine.size());
    engine.close();
    failed = 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  MPI_Finalize();
  return failed;
}
