/* SPDX-License-Identifier: Apache-2.0
 * A program with a defect: uneven BEFORE COUNT OTHERS [return|large] makes so many equal calls of
 * 100,000 doubles on a communicator of its own, then one in which the last rank has COUNT and the
 * others OTHERS. With `return` or `large` the errors come back: each rank prints how long such
 * calls took. The last rank comes late to one, and the others to one; then, unless it is `large`,
 * come small ones of another type and operation, and of other kinds. It ends with equal ones, large
 * and small. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { COUNT = 100000 };
static double input[2 * COUNT], output[2 * COUNT];

static int reduce(int count, MPI_Comm comm) {
  return MPI_Allreduce(input, output, count, MPI_DOUBLE, MPI_SUM, comm);
}

static int rank, size;

/* A call that differs: MPI_Allreduce, or MPI_Barrier without an operation, or MPI_Bcast without a
 * type; `late` ranks come to it after the others. */
static void differ(int count, MPI_Datatype type, MPI_Op op, int late, MPI_Comm comm) {
  MPI_Barrier(comm);
  if (late) nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
  const double begin = MPI_Wtime();
  const int code = type == MPI_DATATYPE_NULL ? MPI_Bcast(output, count, MPI_INT, 0, comm)
                   : op == MPI_OP_NULL       ? MPI_Barrier(comm)
                                             : MPI_Allreduce(input, output, count, type, op, comm);
  const double seconds = MPI_Wtime() - begin - (late ? 0 : 0.2);
  int class = MPI_SUCCESS;
  MPI_Error_class(code, &class);
  printf("class %s after %.3f s\n", class == MPI_ERR_OTHER ? "other" : "not other", seconds);
  fflush(stdout);
}

static int equal(int count, MPI_Comm comm) {
  memset(output, 0, sizeof output);
  return reduce(count, comm) == MPI_SUCCESS && output[count - 1] == size;
}

int main(int argc, char** argv) {
  if (argc < 4) return 1;
  const int returns = argc > 4;
  const int small_too = returns && strcmp(argv[4], "large") != 0;
  MPI_Init(&argc, &argv);
  MPI_Comm comm;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  if (returns) MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  const int is_last = rank == size - 1;
  const int count = atoi(argv[is_last ? 2 : 3]);
  for (int i = 0; i < COUNT; ++i) input[i] = 1;
  for (int i = 0; i < atoi(argv[1]); ++i) reduce(COUNT, comm);
  if (returns) {
    differ(count, MPI_DOUBLE, MPI_SUM, is_last, comm);
    differ(count, MPI_DOUBLE, MPI_SUM, !is_last, comm);
    if (small_too) differ(10, is_last ? MPI_DOUBLE : MPI_INT, MPI_SUM, is_last, comm);
    if (small_too) differ(10, MPI_INT, is_last ? MPI_LAND : MPI_MAX, is_last, comm);
    if (small_too) differ(10, is_last ? MPI_INT : MPI_DATATYPE_NULL, MPI_OP_NULL, is_last, comm);
    if (small_too) differ(is_last ? 10 : 11, MPI_DATATYPE_NULL, MPI_OP_NULL, !is_last, comm);
  } else {
    reduce(count, comm);
  }
  int right = 1;
  for (int i = 0; i < 20; ++i) right = right && equal(i % 3 ? 1000 : COUNT, comm);
  if (right && rank == 0) printf("equal again\n");
  MPI_Finalize();
  return 0;
}
