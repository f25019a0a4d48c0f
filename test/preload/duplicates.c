/* SPDX-License-Identifier: Apache-2.0
 * Communicators that share an engine, and those that do not. duplicates <part>... ends each part
 * with a line "<part> ok" of rank 0. With counter.c preloaded it knows which reductions MPI got. */
#include <pthread.h>

#include "parts.h"

enum { COUNT = 50000, CALLS_OF_MPI = 8 };

__attribute__((weak)) int counted_large(void);

static double values[COUNT];

/* A reduction over all ranks; returns how many MPI had of it. */
static int reduce(MPI_Comm comm) {
  for (int i = 0; i < COUNT; ++i) values[i] = rank + 1;
  const int before = counted_large != NULL ? counted_large() : 0;
  MPI_Allreduce(MPI_IN_PLACE, values, COUNT, MPI_DOUBLE, MPI_SUM, comm);
  check(values[0] == size * (size + 1) / 2 && values[COUNT - 1] == values[0], "a sum is wrong");
  return counted_large != NULL ? counted_large() - before : -1;
}

static void expect(MPI_Comm comm, int of_mpi, const char* what) {
  const int got = reduce(comm);
  check(got < 0 || got == of_mpi, what);
}

/* From here on the communicator has an engine. */
static void warm(MPI_Comm comm) {
  for (int i = 0; i <= CALLS_OF_MPI; ++i) reduce(comm);
}

static MPI_Comm dup_of(MPI_Comm comm) {
  MPI_Comm made;
  MPI_Comm_dup(comm, &made);
  return made;
}

static void ninth(void) {
  MPI_Comm first = dup_of(MPI_COMM_WORLD);
  for (int i = 0; i < CALLS_OF_MPI; ++i) expect(first, 1, "the first eight calls are MPI's");
  expect(first, 0, "the ninth call is Ronde's");
  expect(first, 0, "the tenth call is Ronde's");
  /* Each communicator counts for itself. */
  MPI_Comm before = dup_of(MPI_COMM_WORLD);
  for (int i = 0; i < CALLS_OF_MPI; ++i) expect(before, 1, "another one's first calls are MPI's");
  expect(before, 0, "another one's ninth call is Ronde's");
  MPI_Comm_free(&first);
  expect(before, 0, "the first one is free");
  MPI_Comm_free(&before);
}

static void shared(void) {
  warm(MPI_COMM_WORLD);
  MPI_Comm all[6];
  MPI_Request request;
  all[0] = dup_of(MPI_COMM_WORLD);
  all[1] = dup_of(all[0]);
  all[2] = dup_of(all[1]);
  MPI_Comm_idup(all[1], &all[3], &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Comm_dup_with_info(all[3], MPI_INFO_NULL, &all[4]);
  /* Requests before the first blocking call are MPI's, or not: they are right. */
  MPI_Comm_idup(MPI_COMM_WORLD, &all[5], &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < COUNT; ++i) values[i] = rank;
    MPI_Iallreduce(MPI_IN_PLACE, values, COUNT, MPI_DOUBLE, MPI_MAX, all[5], &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(values[COUNT - 1] == size - 1, "a request of a duplicate");
    for (int i = 5; i >= 0; --i) expect(all[i], 0, "a duplicate's calls are Ronde's at once");
  }
  /* Calls of several duplicates under way at once, in another order on each rank. */
  static double results[6][COUNT];
  MPI_Request requests[6];
  for (int i = 0; i < 6; ++i) {
    const int which = (i + rank) % 6;
    for (int j = 0; j < COUNT; ++j) results[which][j] = rank + which;
    MPI_Iallreduce(MPI_IN_PLACE, results[which], COUNT, MPI_DOUBLE, MPI_SUM, all[which],
                   &requests[i]);
  }
  MPI_Waitall(6, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < 6; ++i) {
    check(results[i][9] == size * (size - 1) / 2 + size * i, "requests of several duplicates");
    MPI_Comm_free(&all[i]);
  }
  expect(MPI_COMM_WORLD, 0, "freed duplicates leave the engine");
}

static void free_order(void) {
  MPI_Comm first = dup_of(MPI_COMM_WORLD);
  warm(first);
  MPI_Comm second = dup_of(first), unused = dup_of(first);
  MPI_Comm_free(&first);
  expect(second, 0, "the first one is free");
  MPI_Comm third = dup_of(second);
  MPI_Comm_free(&second);
  MPI_Comm fourth = dup_of(unused);
  MPI_Comm_free(&unused);
  expect(third, 0, "the second one is free");
  expect(fourth, 0, "the one that was never used is free");
  MPI_Comm_free(&third);
  /* A communicator may go while its request is under way; its number must not come round. Open MPI
   * 4.1 itself crashes there. */
  enum { kLong = 2000000 };
  static double results[2][kLong];
  for (int round = 0; counted_large != NULL && round < 10; ++round) {
    MPI_Request requests[2];
    for (int j = 0; j < 2 * kLong; ++j) results[j / kLong][j % kLong] = j / kLong + 1;
    for (int i = 0; i < 2; ++i) {
      MPI_Comm brief = dup_of(fourth);
      MPI_Barrier(brief);
      MPI_Iallreduce(MPI_IN_PLACE, results[i], kLong, MPI_DOUBLE, MPI_SUM, brief, &requests[i]);
      MPI_Comm_free(&brief);
    }
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 2; ++i) {
      check((int)results[i][kLong - 1] == (i + 1) * size,
            "a request of a communicator that is free");
    }
  }
  MPI_Comm_free(&fourth);
}

static void many(void) {
  enum { kMany = 300 };
  MPI_Comm all[kMany];
  warm(MPI_COMM_WORLD);
  for (int i = 0; i < kMany; ++i) all[i] = dup_of(i % 3 ? all[i - 1] : MPI_COMM_WORLD);
  for (int i = 0; i < kMany; ++i) expect(all[i], 0, "one of many duplicates");
  for (int i = 0; i < kMany; ++i) MPI_Comm_free(&all[i * 7 % kMany]);
}

static void loop(void) {
  warm(MPI_COMM_WORLD);
  for (int i = 0; i < 300; ++i) {
    MPI_Comm brief = dup_of(MPI_COMM_WORLD);
    expect(brief, 0, "a duplicate in a loop");
    MPI_Comm_free(&brief);
  }
}

/* A steady loop, and one that alternates: what it sends is planned. */
static void steady(void) {
  warm(MPI_COMM_WORLD);
  for (int i = 0; i < 500; ++i) reduce(MPI_COMM_WORLD);
  const int counts[] = {20000, 50000, 20000, 30000, 50000, 50000, 50000, 40000};
  for (int i = 0; i < 800; ++i) {
    MPI_Allreduce(MPI_IN_PLACE, values, counts[i % 8], MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  }
}

/* What has other ranks than MPI_COMM_WORLD stays MPI's. */
static void others(void) {
  warm(MPI_COMM_WORLD);
  MPI_Comm half, between, alike, copy;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  const int tag = 7;
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, tag, &between);
  copy = dup_of(between);
  MPI_Comm all[] = {MPI_COMM_SELF, half, between, copy};
  const int ones = (size + 1) / 2, twos = size / 2; /* ranks of each half */
  const double sums[] = {1, rank % 2 ? twos : ones, rank % 2 ? ones : twos, rank % 2 ? ones : twos};
  for (int i = 0; i < 4; ++i) {
    for (int call = 0; call < 12; ++call) {
      static double result[COUNT];
      for (int j = 0; j < COUNT; ++j) values[j] = 1;
      const int before = counted_large != NULL ? counted_large() : 0;
      MPI_Allreduce(values, result, COUNT, MPI_DOUBLE, MPI_SUM, all[i]);
      check(result[COUNT - 1] == sums[i], "a sum of other ranks");
      check(counted_large == NULL || counted_large() == before + 1, "other ranks: MPI's");
    }
  }
  /* The same ranks in the same order, and no duplicate. */
  MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &alike);
  for (int i = 0; i < CALLS_OF_MPI; ++i) expect(alike, 1, "the first calls of one alike");
  expect(alike, 0, "the ninth call of one alike");
  MPI_Comm_free(&alike);
  MPI_Comm_free(&copy);
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
}

static void* work_on(void* communicator) {
  double mine[10000];
  for (int round = 0; round < 60; ++round) {
    MPI_Comm brief;
    MPI_Comm_dup(*(MPI_Comm*)communicator, &brief);
    for (int call = 0; call < 3; ++call) {
      for (int i = 0; i < 10000; ++i) mine[i] = rank + 1;
      MPI_Allreduce(MPI_IN_PLACE, mine, 10000, MPI_DOUBLE, MPI_SUM, brief);
      check(mine[9999] == size * (size + 1) / 2, "a sum in a thread");
      MPI_Allreduce(MPI_IN_PLACE, mine, 10000, MPI_DOUBLE, MPI_MAX, *(MPI_Comm*)communicator);
    }
    MPI_Comm_free(&brief);
  }
  return NULL;
}

static void threads(void) {
  pthread_t all[3];
  MPI_Comm comms[3];
  for (int i = 0; i < 3; ++i) comms[i] = dup_of(MPI_COMM_WORLD);
  for (int i = 0; i < 3; ++i) pthread_create(&all[i], NULL, work_on, &comms[i]);
  for (int i = 0; i < 3; ++i) pthread_join(all[i], NULL);
  for (int i = 0; i < 3; ++i) MPI_Comm_free(&comms[i]);
}

int main(int argc, char** argv) {
  const struct part parts[] = {{"ninth", ninth},   {"shared", shared},  {"free_order", free_order},
                               {"many", many},     {"loop", loop},      {"steady", steady},
                               {"others", others}, {"threads", threads}};
  return run_parts(argc, argv, parts, sizeof parts / sizeof *parts);
}
