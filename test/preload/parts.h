/* SPDX-License-Identifier: Apache-2.0
 * A program that knows only MPI, in parts that run by their names. */
#ifndef RONDE_TEST_PRELOAD_PARTS_H
#define RONDE_TEST_PRELOAD_PARTS_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

struct part {
  const char* name;
  void (*run)(void);
};

/* The whole of main(). STOCK_THREADS: the level of threads that MPI is asked for. */
static int run_parts(int argc, char** argv, const struct part* parts, size_t count) {
  const char* threads = getenv("STOCK_THREADS");
  int provided = 0;
  if (threads != NULL) {
    MPI_Init_thread(&argc, &argv, atoi(threads), &provided);
  } else {
    MPI_Init(&argc, &argv);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int i = 1; i < argc; ++i) {
    for (size_t part = 0; part < count; ++part) {
      if (strcmp(argv[i], parts[part].name) != 0) continue;
      parts[part].run();
      MPI_Barrier(MPI_COMM_WORLD);
      if (rank == 0) printf("%s ok\n", argv[i]);
    }
  }
  MPI_Finalize();
  return 0;
}

#endif
