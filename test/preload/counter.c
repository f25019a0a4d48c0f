/* SPDX-License-Identifier: Apache-2.0
 * Preloaded as well: counts the reductions that MPI itself gets, and prints them as the process
 * ends, with what each engine has done. A program may ask for those of 40,000 bytes and more. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <ronde/ronde.h>
#include <stdio.h>

static int blocking, nonblocking, large, broadcasts, barriers;

int counted_large(void);
int counted_large(void) { return large; }

static void count_large(int count, MPI_Datatype type) {
  int bytes = 0;
  MPI_Type_size(type, &bytes);
  large += (long)count * bytes >= 40000;
}

int PMPI_Allreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm) {
  int (*next)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);
  *(void**)&next = dlsym(RTLD_NEXT, "PMPI_Allreduce");
  ++blocking;
  count_large(count, type);
  return next(send, receive, count, type, op, comm);
}

int PMPI_Iallreduce(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                    MPI_Comm comm, MPI_Request* request) {
  int (*next)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request*);
  *(void**)&next = dlsym(RTLD_NEXT, "PMPI_Iallreduce");
  ++nonblocking;
  count_large(count, type);
  return next(send, receive, count, type, op, comm, request);
}

int PMPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  int (*next)(void*, int, MPI_Datatype, int, MPI_Comm);
  *(void**)&next = dlsym(RTLD_NEXT, "PMPI_Bcast");
  ++broadcasts;
  return next(buffer, count, type, root, comm);
}

int PMPI_Barrier(MPI_Comm comm) {
  int (*next)(MPI_Comm);
  *(void**)&next = dlsym(RTLD_NEXT, "PMPI_Barrier");
  ++barriers;
  return next(comm);
}

ronde_status ronde_engine_close(ronde_engine* engine, ronde_error** error) {
  ronde_status (*next)(ronde_engine*, ronde_error**);
  *(void**)&next = dlsym(RTLD_NEXT, "ronde_engine_close");
  ronde_statistics done;
  ronde_statistics_init(&done);
  if (ronde_engine_statistics(engine, &done, NULL) == RONDE_OK) {
    printf("rank %d: an engine had %d by name and %d planned\n", ronde_rank(engine),
           (int)done.full_requests, (int)done.planned_requests);
  }
  return next(engine, error);
}

int MPI_Finalize(void) {
  int (*next)(void);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  printf("rank %d: MPI had %d and %d\n", rank, blocking, nonblocking);
  printf("rank %d: MPI had %d broadcasts and %d barriers\n", rank, broadcasts, barriers);
  *(void**)&next = dlsym(RTLD_NEXT, "MPI_Finalize");
  return next();
}
