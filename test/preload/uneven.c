/* SPDX-License-Identifier: Apache-2.0
 * A program with a defect: uneven BEFORE COUNT [return] makes so many equal calls of 100,000
 * doubles on a communicator of its own, then one in which the last rank has COUNT. With `return`
 * the errors come back: rank 0 prints how long the call took, and goes on with an equal one where
 * it can. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 100000 };
static double input[2 * COUNT], output[2 * COUNT];

static int reduce(int count, MPI_Comm comm) {
  return MPI_Allreduce(input, output, count, MPI_DOUBLE, MPI_SUM, comm);
}

int main(int argc, char** argv) {
  if (argc < 3) return 1;
  const int returns = argc > 3 && strcmp(argv[3], "return") == 0;
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm comm;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  if (returns) MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  const int count = rank == size - 1 ? atoi(argv[2]) : COUNT;
  for (int i = 0; i < COUNT; ++i) input[i] = 1;
  for (int i = 0; i < atoi(argv[1]); ++i) reduce(COUNT, comm);
  const double begin = MPI_Wtime();
  const int code = reduce(count, comm);
  const double seconds = MPI_Wtime() - begin;
  int class = MPI_SUCCESS;
  MPI_Error_class(code, &class);
  if (rank == 0) {
    printf("class %s after %.3f s\n", class == MPI_ERR_OTHER ? "other" : "not other", seconds);
    fflush(stdout);
  }
  /* A rank whose call has gone to MPI is still there. */
  if ((long)atoi(argv[2]) * 8 < 65536) MPI_Abort(MPI_COMM_WORLD, 3);
  if (reduce(COUNT, comm) == MPI_SUCCESS && output[COUNT - 1] == size && rank == 0) {
    printf("equal again\n");
  }
  MPI_Finalize();
  return 0;
}
