/* SPDX-License-Identifier: Apache-2.0
 * An MPI program that knows nothing of Ronde: what MPI promises must hold with and without the
 * preloaded library. stock <part>...   each part ends with a line "<part> ok" of rank 0 Results are
 * compared with MPI_Reduce, which nothing takes over, and large MPI_Bcasts, which go to MPI in the
 * end: integers by their bytes, floating types to rounding. */
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#include "parts.h"

#define LARGE \
  40000 /* elements: above the default of the library in each type of two bytes and more */
enum { MOST_BYTES = LARGE * 8 };

typedef struct Type {
  MPI_Datatype handle;
  const char* name;
  char kind; /* integer, float, byte */
} Type;

/* Sums and products of short integers are small: where they overflow MPIs differ (Open MPI's
 * kernels saturate). */
static void fill(void* data, int count, const Type* type, MPI_Op op, unsigned seed) {
  unsigned state = seed * 2654435761U + 12345U;
  for (int i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    if (type->handle == MPI_FLOAT) {
      ((float*)data)[i] = 0.5F + (float)(state >> 8) / 16777216.0F;
    } else if (type->handle == MPI_DOUBLE) {
      ((double*)data)[i] = 0.5 + (double)(state >> 8) / 16777216.0;
    } else {
      int bytes = 0;
      MPI_Type_size(type->handle, &bytes);
      unsigned char* bytes_of = (unsigned char*)data + i * bytes;
      const int small = bytes <= 2 && (op == MPI_SUM || op == MPI_PROD);
      for (int b = 0; b < bytes; ++b) {
        bytes_of[b] = (unsigned char)(small ? (b == 0 ? state >> 30 : 0) : state >> (8 + 3 * b));
      }
    }
  }
}

static int alike(const void* a, const void* b, int count, const Type* type) {
  int bytes = 0;
  MPI_Type_size(type->handle, &bytes);
  if (type->kind != 'f') return memcmp(a, b, (size_t)count * (size_t)bytes) == 0;
  for (int i = 0; i < count; ++i) {
    const double x = bytes == 4 ? (double)((const float*)a)[i] : ((const double*)a)[i];
    const double y = bytes == 4 ? (double)((const float*)b)[i] : ((const double*)b)[i];
    if (fabs(x - y) > (bytes == 4 ? 1e-6 : 1e-14) * fabs(y)) return 0;
  }
  return 1;
}

/* What MPI_Allreduce gives, and whether all ranks have got the same bytes. */
static void compare(const void* input, const void* result, int count, const Type* type, MPI_Op op,
                    const char* what) {
  static unsigned char expected[MOST_BYTES];
  int bytes = 0;
  MPI_Type_size(type->handle, &bytes);
  MPI_Reduce(input, expected, count, type->handle, op, 0, MPI_COMM_WORLD);
  MPI_Bcast(expected, count, type->handle, 0, MPI_COMM_WORLD);
  check(alike(result, expected, count, type), what);
  memcpy(expected, result, (size_t)count * (size_t)bytes);
  MPI_Bcast(expected, count, type->handle, 0, MPI_COMM_WORLD);
  check(memcmp(result, expected, (size_t)count * (size_t)bytes) == 0, "the ranks' results differ");
}

/* The first eight large calls of a communicator are MPI's with the library, too. */
static void warm_up(int calls) {
  static int value[LARGE];
  for (int i = 0; i < calls; ++i) {
    MPI_Allreduce(MPI_IN_PLACE, value, LARGE, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  }
}

static void types(void) {
  const Type all[] = {{MPI_FLOAT, "float", 'f'},
                      {MPI_DOUBLE, "double", 'f'},
                      {MPI_INT, "int", 'i'},
                      {MPI_LONG, "long", 'i'},
                      {MPI_LONG_LONG, "long long", 'i'},
                      {MPI_UNSIGNED, "unsigned", 'i'},
                      {MPI_UNSIGNED_LONG, "ulong", 'i'},
                      {MPI_UNSIGNED_LONG_LONG, "ulong long", 'i'},
                      {MPI_SHORT, "short", 'i'},
                      {MPI_UNSIGNED_SHORT, "ushort", 'i'},
                      {MPI_SIGNED_CHAR, "schar", 'i'},
                      {MPI_UNSIGNED_CHAR, "uchar", 'i'},
                      {MPI_INT8_T, "int8", 'i'},
                      {MPI_INT16_T, "int16", 'i'},
                      {MPI_INT32_T, "int32", 'i'},
                      {MPI_INT64_T, "int64", 'i'},
                      {MPI_UINT8_T, "uint8", 'i'},
                      {MPI_UINT16_T, "uint16", 'i'},
                      {MPI_UINT32_T, "uint32", 'i'},
                      {MPI_UINT64_T, "uint64", 'i'},
                      {MPI_AINT, "aint", 'i'},
                      {MPI_OFFSET, "offset", 'i'},
                      {MPI_COUNT, "count", 'i'},
                      {MPI_BYTE, "byte", 'b'}};
  const MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR};
  static unsigned char input[MOST_BYTES], output[MOST_BYTES];
  warm_up(8);
  for (size_t t = 0; t < sizeof all / sizeof *all; ++t) {
    for (int o = 0; o < 7; ++o) {
      if (o >= 4 ? all[t].kind == 'f' : all[t].kind == 'b') continue;
      fill(input, LARGE, &all[t], ops[o], (unsigned)(rank * 100 + o));
      memset(output, 0, sizeof output);
      MPI_Allreduce(input, output, LARGE, all[t].handle, ops[o], MPI_COMM_WORLD);
      compare(input, output, LARGE, &all[t], ops[o], all[t].name);
      fill(output, LARGE, &all[t], ops[o], (unsigned)(rank * 100 + o));
      MPI_Allreduce(MPI_IN_PLACE, output, LARGE, all[t].handle, ops[o], MPI_COMM_WORLD);
      compare(input, output, LARGE, &all[t], ops[o], "in place");
    }
  }
}

/* Small calls of each kind on a duplicate, where the library's default takes them over. */
static void small_calls(MPI_Comm comm) {
  static double input[600], output[600], sum[600];
  for (int call = 0; call < 60; ++call) {
    const int count = (int[]){1, 6, 7, 500, 512, 513}[call % 6]; /* the last goes by name */
    const int root = call % size;
    for (int i = 0; i < count; ++i) input[i] = 1.0 / (3 + rank + i) + call;
    MPI_Reduce(input, sum, count, MPI_DOUBLE, MPI_SUM, root, comm);
    if (call % 2) memcpy(output, input, sizeof output);
    MPI_Allreduce(call % 2 ? MPI_IN_PLACE : input, output, count, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Bcast(sum, count, MPI_DOUBLE, root, comm);
    for (int i = 0; i < count; ++i) check(fabs(sum[i] - output[i]) < 1e-9, "a small sum");
    /* Every second element of a matrix: some ranks have other types of the same bytes. */
    MPI_Datatype strided;
    MPI_Type_vector(10, 1, 2, MPI_INT, &strided);
    MPI_Type_commit(&strided);
    int sparse[20], dense[10];
    for (int i = 0; i < 20; ++i) sparse[i] = rank == root ? i : -1;
    for (int i = 0; i < 10; ++i) dense[i] = rank == root ? 2 * i : -1;
    if (rank % 2) {
      MPI_Bcast(sparse, 1, strided, root, comm);
    } else {
      MPI_Bcast(dense, 10, MPI_INT, root, comm);
    }
    for (int i = 0; i < 10; ++i) {
      check((rank % 2 ? sparse[2 * i] : dense[i]) == 2 * i, "a strided broadcast");
      check(rank == root || sparse[2 * i + 1] == -1, "what lies between");
    }
    MPI_Type_free(&strided);
    MPI_Bcast(NULL, 0, MPI_INT, root, comm);
    MPI_Barrier(comm);
  }
}

static void lines(void) {
  warm_up(9);
  small_calls(MPI_COMM_WORLD);
  MPI_Comm other;
  MPI_Comm_dup(MPI_COMM_WORLD, &other);
  small_calls(other);
  MPI_Comm_free(&other);
  MPI_Comm_dup(MPI_COMM_WORLD, &other); /* has the number of the one before */
  small_calls(other);
  MPI_Comm_free(&other);
}

static void keep_first(void* in, void* inout, int* count,
                       MPI_Datatype* type) { /* not commutative */
  (void)type;
  memcpy(inout, in, (size_t)*count * sizeof(int));
}

/* What must reach MPI: the test counts it there. */
static void passed(void) {
  static int input[LARGE], output[LARGE];
  for (int i = 0; i < LARGE; ++i) input[i] = rank;
  MPI_Op op;
  MPI_Op_create(keep_first, 0, &op);
  MPI_Allreduce(input, output, LARGE, MPI_INT, op, MPI_COMM_WORLD); /* 1 */
  check(output[LARGE - 1] == 0, "an operation of the program's");
  MPI_Op_free(&op);
  MPI_Datatype pair;
  MPI_Type_contiguous(2, MPI_INT, &pair);
  MPI_Type_commit(&pair);
  MPI_Op_create(keep_first, 0, &op);
  MPI_Allreduce(input, output, LARGE / 2, pair, op, MPI_COMM_WORLD); /* 2 */
  MPI_Op_free(&op);
  MPI_Type_free(&pair);
  MPI_Allreduce(input, output, LARGE, MPI_INT, MPI_LAND, MPI_COMM_WORLD); /* 3 */
  check(output[0] == 0, "a logical operation");
  MPI_Allreduce(input, output, LARGE / 2, MPI_2INT, MPI_MAXLOC, MPI_COMM_WORLD); /* 4 */
  check(output[0] == size - 1, "MPI_MAXLOC");
  MPI_Allreduce(input, output, 100, MPI_INT, MPI_SUM, MPI_COMM_WORLD); /* 5: small */
  check(output[99] == size * (size - 1) / 2, "a small one");
  MPI_Allreduce(input, output, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD);    /* 6: nothing */
  MPI_Allreduce(input, output, LARGE, MPI_INT, MPI_SUM, MPI_COMM_SELF); /* 7 */
  check(output[0] == rank, "MPI_COMM_SELF");
  MPI_Comm part;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &part);
  MPI_Allreduce(input, output, LARGE, MPI_INT, MPI_MAX, part); /* 8 */
  check(output[5] % 2 == rank % 2, "a part of the ranks");
  MPI_Comm_free(&part);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &part);
  MPI_Allreduce(input, output, LARGE, MPI_INT, MPI_MAX, part); /* 9: other ranks than the world's */
  check(output[5] == size - 1, "the ranks in another order");
  MPI_Comm_free(&part);
}

static void duplicates(void) {
  static double input[LARGE], output[LARGE];
  warm_up(9);
  for (int round = 0; round < 3; ++round) {
    MPI_Comm some[3];
    for (int i = 0; i < 3; ++i) MPI_Comm_dup(i == 0 ? MPI_COMM_WORLD : some[i - 1], &some[i]);
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < LARGE; ++j) input[j] = rank + i;
      MPI_Allreduce(input, output, LARGE, MPI_DOUBLE, MPI_SUM, some[i]);
      check(output[LARGE - 1] == size * (size - 1) / 2 + size * i, "a duplicate");
    }
    /* Ranks may use communicators in any order with requests. */
    static double results[3][LARGE];
    MPI_Request requests[3];
    for (int i = 0; i < 3; ++i) {
      const int which = (i + rank) % 3;
      MPI_Iallreduce(input, results[which], LARGE, MPI_DOUBLE, MPI_MAX, some[which], &requests[i]);
    }
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 3; ++i) check(results[i][7] == size + 1, "requests of several duplicates");
    for (int i = 0; i < 3; ++i) MPI_Comm_free(&some[i]);
  }
}

/* Each way to test and to wait, with a large message to the next rank beside. */
static void requests(void) {
  static float input[8][LARGE], output[8][LARGE];
  static char message[1 << 20], incoming[1 << 20];
  warm_up(8);
  MPI_Barrier(MPI_COMM_WORLD); /* from here on there is an engine */
  for (int way = 0; way < 8; ++way) {
    MPI_Request all[10];
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < LARGE; ++j) input[i][j] = (float)(rank + i * j);
      MPI_Iallreduce(i % 2 ? MPI_IN_PLACE : input[i],
                     i % 2 ? memcpy(output[i], input[i], sizeof input[i]) : output[i], LARGE,
                     MPI_FLOAT, MPI_MAX, MPI_COMM_WORLD, &all[i]);
    }
    MPI_Isend(message, sizeof message, MPI_CHAR, (rank + 1) % size, way, MPI_COMM_WORLD, &all[8]);
    MPI_Irecv(incoming, sizeof incoming, MPI_CHAR, (rank + size - 1) % size, way, MPI_COMM_WORLD,
              &all[9]);
    int left = 10, flag = 0, index, some[10];
    MPI_Status status, statuses[10];
    switch (way) {
      case 0:
        MPI_Waitall(10, all, statuses);
        MPI_Get_count(&statuses[9], MPI_CHAR, &index);
        check(index == sizeof incoming, "the status of a message beside");
        break;
      case 1:
        for (int i = 9; i >= 0; --i) MPI_Wait(&all[i], &status);
        break;
      case 2:
        for (; left > 0; --left) {
          MPI_Waitany(10, all, &index, &status);
          check(index >= 0 && index < 10 && all[index] == MPI_REQUEST_NULL, "MPI_Waitany");
        }
        MPI_Waitany(10, all, &index, &status);
        check(index == MPI_UNDEFINED, "MPI_Waitany of nothing");
        break;
      case 3:
        while (left > 0) {
          MPI_Waitsome(10, all, &index, some, statuses);
          check(index > 0, "MPI_Waitsome");
          left -= index;
        }
        MPI_Waitsome(10, all, &index, some, statuses);
        check(index == MPI_UNDEFINED, "MPI_Waitsome of nothing");
        break;
      case 4:
        while (!flag) MPI_Testall(10, all, &flag, MPI_STATUSES_IGNORE);
        break;
      case 5:
        for (int i = 0; i < 10; ++i) {
          for (flag = 0; !flag;) MPI_Test(&all[i], &flag, MPI_STATUS_IGNORE);
        }
        break;
      case 6:
        while (left > 0) {
          MPI_Testany(10, all, &index, &flag, &status);
          left -= flag;
        }
        break;
      default:
        for (int i = 0; i < 10; ++i) {
          for (flag = 0; !flag;) MPI_Request_get_status(all[i], &flag, &status);
        }
        while (left > 0) {
          MPI_Testsome(10, all, &index, some, statuses);
          left -= index;
        }
    }
    for (int i = 0; i < 10; ++i) check(all[i] == MPI_REQUEST_NULL, "a request is left");
    for (int i = 0; i < 8; ++i) {
      for (int j = 0; j < LARGE; ++j)
        check(output[i][j] == (float)(size - 1 + i * j), "the result of a request");
    }
  }
}

/* A rank that begins a reduction may be needed by others before they begin it. */
static void order(void) {
  static int value[LARGE];
  static char message[1 << 22];
  for (int round = 0; round < 8; ++round) {
    MPI_Request reduction, sent = MPI_REQUEST_NULL;
    /* Rank 0 begins, then sends what the others wait for before they begin. */
    if (rank != 0) MPI_Recv(message, 1, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < LARGE; ++i) value[i] = 1;
    MPI_Iallreduce(MPI_IN_PLACE, value, LARGE, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &reduction);
    if (rank == 0) {
      for (int other = 1; other < size; ++other)
        MPI_Send(message, 1, MPI_CHAR, other, 1, MPI_COMM_WORLD);
    }
    MPI_Wait(&reduction, MPI_STATUS_IGNORE);
    check(value[LARGE - 1] == size, "a reduction begun early");
    /* A message too large to go at once moves on while its sender waits in a reduction. */
    if (rank == 0) MPI_Isend(message, sizeof message, MPI_CHAR, 1, 2, MPI_COMM_WORLD, &sent);
    if (rank == 1)
      MPI_Recv(message, sizeof message, MPI_CHAR, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Allreduce(MPI_IN_PLACE, value, LARGE, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check(value[0] == size * size, "a reduction after it");
    MPI_Wait(&sent, MPI_STATUS_IGNORE);
  }
}

/* More in flight than there are names. */
static void many(void) {
  enum { kMany = 1100, kCount = 20000 };
  static int input[kCount];
  int* output = malloc(sizeof(int) * 4 * kCount);
  MPI_Request all[kMany];
  warm_up(9);
  for (int i = 0; i < kCount; ++i) input[i] = rank + 1;
  for (int i = 0; i < kMany; ++i) {
    int* place = output + (i % 4) * kCount;
    if (i >= 4) MPI_Wait(&all[i - 4], MPI_STATUS_IGNORE);
    MPI_Iallreduce(input, place, kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &all[i]);
  }
  MPI_Waitall(4, all + kMany - 4, MPI_STATUSES_IGNORE);
  check(output[0] == size * (size + 1) / 2, "many requests");
  free(output);
}

/* A rank dies while the others wait for it. */
static void killed(void) {
  static int value[LARGE];
  warm_up(9);
  if (rank == size - 1) raise(SIGKILL);
  MPI_Allreduce(MPI_IN_PLACE, value, LARGE, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

/* The same in a broadcast that is done in a line. */
static void killed_small(void) {
  int value = 0;
  warm_up(9);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == size - 1) raise(SIGKILL);
  MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
}

/* Ranks may come to a reduction long after each other. */
static void late(void) {
  static int value[LARGE];
  warm_up(8);
  if (rank == size - 1) sleep(6); /* longer than the engines may take to open */
  MPI_Allreduce(MPI_IN_PLACE, value, LARGE, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
  const struct part parts[] = {{"types", types},           {"passed", passed},
                               {"duplicates", duplicates}, {"requests", requests},
                               {"order", order},           {"many", many},
                               {"killed", killed},         {"late", late},
                               {"lines", lines},           {"killed_small", killed_small}};
  return run_parts(argc, argv, parts, sizeof parts / sizeof *parts);
}
