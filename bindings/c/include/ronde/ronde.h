/* SPDX-License-Identifier: Apache-2.0
 *
 * The C ABI of Ronde: allreduce for data-parallel training.
 *
 * Every rank of a job opens an engine and submits tensors by name, in any order and from any
 * thread. A background coordinator finds out which of them are ready on every rank, batches them,
 * reduces them and completes the works. Structs begin with struct_size so that they can grow: fill
 * them with their ..._init function, then set what you need.
 *
 * Errors: each call returns a ronde_status. Where `error` is not NULL and the call fails, *error
 * receives an object that holds the whole text; release it with ronde_error_release. On success
 * *error is not touched.
 *
 * Thread safety: an engine may be used from any number of threads at once, except that
 * ronde_engine_close must be the last call on it. A work belongs to one thread at a time.
 */
#ifndef RONDE_RONDE_H
#define RONDE_RONDE_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RONDE_API __attribute__((visibility("default")))
#else
#define RONDE_API
#endif

#define RONDE_VERSION_MAJOR 0
#define RONDE_VERSION_MINOR 1
#define RONDE_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ronde_engine ronde_engine;
typedef struct ronde_work ronde_work;
typedef struct ronde_error ronde_error;
typedef struct ronde_local_job ronde_local_job;
typedef struct ronde_buffer ronde_buffer;

typedef enum ronde_status {
  RONDE_OK = 0,
  RONDE_INVALID_ARGUMENT = 1, /* the call can never work as it is */
  RONDE_MISMATCH = 2,         /* the ranks disagree about this tensor; the engine lives on */
  RONDE_DUPLICATE_NAME = 3,   /* this name is already in flight on this rank */
  RONDE_CLOSED = 4,           /* an engine of the job has been closed */
  RONDE_PEER_FAILED = 5,      /* a rank died; every work fails from now on */
  RONDE_DEADLINE = 6,         /* a deadline passed */
  RONDE_UNSUPPORTED = 7,      /* not possible in this build or this job */
  RONDE_OUT_OF_MEMORY = 8,
  RONDE_SYSTEM = 9,     /* the operating system refused something */
  RONDE_TRANSPORT = 10, /* MPI refused something */
  RONDE_INTERNAL = 11   /* a bug in Ronde: please report it */
} ronde_status;

typedef enum ronde_dtype {
  RONDE_U8 = 0,
  RONDE_I8 = 1,
  RONDE_U16 = 2,
  RONDE_I16 = 3,
  RONDE_U32 = 4,
  RONDE_I32 = 5,
  RONDE_U64 = 6,
  RONDE_I64 = 7,
  RONDE_F16 = 8,
  RONDE_BF16 = 9,
  RONDE_F32 = 10,
  RONDE_F64 = 11,
  RONDE_BOOL = 12 /* one byte; all but 0 is true, results are 0 or 1: min, max, bitwise only */
} ronde_dtype;

/* Types of 16 bits are summed in f32, in rank order, and rounded once. */
typedef enum ronde_op {
  RONDE_AVERAGE = 0, /* the sum divided by the number of ranks; integers truncate towards zero */
  RONDE_SUM = 1,     /* integers wrap around */
  RONDE_MIN = 2,     /* a NaN in any contribution makes it NaN; -0 is below +0; of bools: "and" */
  RONDE_MAX = 3,     /* likewise; of bools: "or" */
  RONDE_PRODUCT = 4, /* integers wrap around */
  RONDE_BAND = 5,    /* bitwise: integers and RONDE_BOOL */
  RONDE_BOR = 6,
  RONDE_BXOR = 7
} ronde_op;

/* What travels between the ranks in place of f32: half the bytes, and fewer digits. Every
 * contribution is rounded when it is read, the sums are formed in f32. */
typedef enum ronde_compression {
  RONDE_COMPRESSION_NONE = 0,
  RONDE_COMPRESSION_BF16 = 1,
  RONDE_COMPRESSION_F16 = 2
} ronde_compression;

/* flags of ronde_request */
#define RONDE_FLAG_WILL_WAIT 1u /* the caller waits at once: do not wake the background thread */

#define RONDE_DEVICE_CPU (-1)

typedef struct ronde_engine_options {
  size_t struct_size;
  /* The job's ranks: a pointer to an MPI_Comm, or NULL for MPI_COMM_WORLD. The communicator is
   * duplicated. If MPI has not been started Ronde starts it; without mpirun the job has one rank
   * and uses no MPI. A program that has started MPI itself below MPI_THREAD_MULTIPLE must not call
   * MPI while works are in flight, since the background thread may be in MPI then. Below
   * MPI_THREAD_SERIALIZED there is no background thread where operations need MPI (several hosts,
   * or RONDE_ALGORITHM named): works go on only inside ronde_work_wait() and ronde_engine_close(),
   * which are then for the thread alone that opened the engine (else RONDE_UNSUPPORTED). */
  const void* mpi_communicator;
  /* A job of engines in one process (for tests) instead of MPI, and the rank of this engine. */
  ronde_local_job* local_job;
  int32_t local_job_rank;
  uint64_t flags; /* must be 0 */
} ronde_engine_options;

/* One tensor that is ready here. Operations that do not use a field ignore it. */
typedef struct ronde_request {
  size_t struct_size;
  const char* name;  /* the same on all ranks; at most 4,096 bytes */
  const void* input; /* dense, row-major; NULL: in place, that is `output` */
  void* output;      /* as large as the input, and equal to it or disjoint; a reduce-scatter's: see
                        there; NULL for an allgather and an all-to-all (see ronde_work_output) */
  const int64_t* shape; /* elements of each dimension; where one is 0 the pointers may be NULL */
  int32_t dimensions;   /* entries of shape; 0 is a scalar, one element */
  int32_t dtype;        /* a ronde_dtype */
  int32_t op;           /* allreduce, reduce-scatter: a ronde_op */
  int32_t root;         /* broadcast: the rank whose values everybody gets */
  double prescale;   /* where there is an op, of floating types: multiplies every contribution; 1 */
  double postscale;  /* ... and the result; 1 */
  int32_t device;    /* where the memory is: RONDE_DEVICE_CPU, or a device (see "devices") */
  void* stream;      /* of a device: where the input was written; NULL is the default stream */
  void* ready_event; /* ... and the event behind which it may be read; NULL: all before submit */
  int32_t priority;  /* higher goes into a batch first; the coordinator follows rank 0 */
  int64_t deadline_ns; /* 0: the stall deadline of the engine; others: RONDE_UNSUPPORTED */
  uint64_t flags;      /* RONDE_FLAG_...; 0 */
  const char* file; /* where the call stands in the caller's source, for error texts; may be NULL */
  int32_t line;
  int32_t reserved; /* must be 0 */
  /* Younger than the fields above; a program that was built without them has the defaults. */
  int32_t compression;   /* a ronde_compression; where there is an op, of f32 only */
  int32_t split_count;   /* entries of splits: 0, or the number of ranks */
  const int64_t* splits; /* rows of each rank: see ronde_reduce_scatter and ronde_all_to_all */
} ronde_request;

/* What an engine has done since it was opened. */
typedef struct ronde_statistics {
  size_t struct_size;
  uint64_t batches;          /* batches this rank has executed */
  uint64_t tensors;          /* tensors in them */
  uint64_t payload_bytes;    /* bytes of those tensors */
  uint64_t control_bytes;    /* bytes of requests and decisions this rank has written and read */
  uint64_t full_requests;    /* announcements by name */
  uint64_t planned_requests; /* announcements by a bit of the plan */
  uint64_t background_wakes; /* times the background thread left its sleep */
  /* Nanoseconds in which a batch was under way: from its first step on this rank until its results
   * were complete here, waiting for other ranks included. */
  uint64_t execution_nanoseconds;
} ronde_statistics;

RONDE_API const char* ronde_version(void);
RONDE_API const char* ronde_status_name(ronde_status status);

/* ---- errors ---- */
/* The whole text in one line. Valid until the error is released. */
RONDE_API const char* ronde_error_message(const ronde_error* error);
/* "file:line" where the error was first noticed; may be empty. */
RONDE_API const char* ronde_error_place(const ronde_error* error);
RONDE_API ronde_status ronde_error_status(const ronde_error* error);
/* The rank at fault, or -1. */
RONDE_API int32_t ronde_error_rank(const ronde_error* error);
RONDE_API void ronde_error_release(ronde_error* error); /* NULL is fine */

/* ---- jobs in one process ---- */
RONDE_API ronde_status ronde_local_job_create(int32_t size, ronde_local_job** job,
                                              ronde_error** error);
/* The engines of the job may outlive this call. NULL is fine. */
RONDE_API void ronde_local_job_release(ronde_local_job* job);

/* ---- engines ---- */
RONDE_API void ronde_engine_options_init(ronde_engine_options* options);
/* Blocks until every rank of the job has opened its engine, at most RONDE_START_TIMEOUT_SECONDS
 * (then RONDE_DEADLINE). `options` may be NULL. */
RONDE_API ronde_status ronde_engine_open(const ronde_engine_options* options, ronde_engine** engine,
                                         ronde_error** error);
/* Completes what can be completed, fails the rest, and releases the engine whatever it returns:
 * not RONDE_OK when works were failed. NULL is fine. Works stay valid until they are released. */
RONDE_API ronde_status ronde_engine_close(ronde_engine* engine, ronde_error** error);

/* -1 when engine is NULL. */
RONDE_API int32_t ronde_rank(const ronde_engine* engine);
RONDE_API int32_t ronde_size(const ronde_engine* engine);
RONDE_API int32_t ronde_local_rank(const ronde_engine* engine);
RONDE_API int32_t ronde_local_size(const ronde_engine* engine);

RONDE_API void ronde_statistics_init(ronde_statistics* statistics);
RONDE_API ronde_status ronde_engine_statistics(const ronde_engine* engine,
                                               ronde_statistics* statistics, ronde_error** error);

/* ---- memory on the board ----
 * Memory that the ranks of this host share. An allreduce in place of a tensor that lies in such
 * memory on every rank is done where it lies, without a copy; the result has the same bits. Nothing
 * else differs from other memory, and ranks may mix the two.
 *
 * Aligned to 64 bytes, its contents are not specified; it may have 0 bytes. RONDE_BUFFER_BYTES is
 * the most that a rank can have (RONDE_OUT_OF_MEMORY beyond it); memory is taken as it is first
 * written. A buffer is engine memory: while a work on it is in flight the other ranks write into
 * it, and after the job has failed they may do so for a moment longer. It stays mapped until it is
 * released, also when its engine has been closed or has failed; a failed engine gives out no more.
 */
RONDE_API ronde_status ronde_buffer_allocate(ronde_engine* engine, size_t bytes,
                                             ronde_buffer** buffer, ronde_error** error);
/* Where it lies; NULL for NULL. */
RONDE_API void* ronde_buffer_memory(const ronde_buffer* buffer);
/* From any thread, before or after the engine is closed; no work on it may be in flight. NULL is
 * fine. In a forked child nothing happens to the memory: it is the parent's. */
RONDE_API void ronde_buffer_release(ronde_buffer* buffer);

/* ---- devices ----
 * Tensors may lie in the memory of a device that a plug-in serves (<ronde/plugin.h>):
 * libronde_cuda.so beside libronde.so, or what RONDE_PLUGIN_PATH names (off: none). It is found
 * when the engines open, on all ranks or on none; one line of the log (level info) says which and
 * of what versions, or why it stays out. Then `device` of a request is the number of the device
 * that this rank uses, and every pointer of the request is memory of it, or managed memory, which
 * may be declared as either. A declaration that is wrong is RONDE_INVALID_ARGUMENT, and a device
 * that nothing serves RONDE_UNSUPPORTED. The ranks agree on whether a tensor is on a device; which
 * one is the business of each.
 *
 * Memory of the request is read and written when ready_event has come, as it was recorded last, or,
 * without one, when the stream has done what had been put into it. Both are looked at by the call
 * that submits, and only then: afterwards the event may be recorded again, and both may be
 * destroyed or captured. A stream under graph capture is refused. After submit the host need not
 * wait: see ronde_work_wait_stream. Batches of devices follow each other in the order of the job;
 * what cannot be done there (an op that the device has not) fails alone, as RONDE_UNSUPPORTED. */

/* ---- operations ----
 * The _async forms return a work; memory of the request belongs to the engine until the work is
 * done. The other forms wait. An error of the call itself (RONDE_INVALID_ARGUMENT,
 * RONDE_DUPLICATE_NAME, a failed engine) makes no work. */
RONDE_API void ronde_request_init(ronde_request* request);

RONDE_API ronde_status ronde_allreduce_async(ronde_engine* engine, const ronde_request* request,
                                             ronde_work** work, ronde_error** error);
RONDE_API ronde_status ronde_allreduce(ronde_engine* engine, const ronde_request* request,
                                       ronde_error** error);
RONDE_API ronde_status ronde_broadcast_async(ronde_engine* engine, const ronde_request* request,
                                             ronde_work** work, ronde_error** error);
RONDE_API ronde_status ronde_broadcast(ronde_engine* engine, const ronde_request* request,
                                       ronde_error** error);
/* Concatenates along the first dimension, which may differ between ranks. The result belongs to
 * the work. */
RONDE_API ronde_status ronde_allgather_async(ronde_engine* engine, const ronde_request* request,
                                             ronde_work** work, ronde_error** error);
/* Waits; *work is done and holds the result. */
RONDE_API ronde_status ronde_allgather(ronde_engine* engine, const ronde_request* request,
                                       ronde_work** work, ronde_error** error);
/* Reduces, and leaves each rank its rows of the result in `output`. Rows are entries of the first
 * dimension: rank r gets splits[r] of them (the same splits on every rank; they add up to the
 * rows), or, without splits, an even share, of which the first ranks get one more when there is a
 * rest. The input is the whole tensor and must be given. In place means that `output` points at
 * this rank's rows in `input`; otherwise the two are disjoint. Over several hosts rows are
 * summed in the order of the host that gets them: the bits depend on the splits too, and need not
 * be those of an allreduce. */
RONDE_API ronde_status ronde_reduce_scatter_async(ronde_engine* engine,
                                                  const ronde_request* request, ronde_work** work,
                                                  ronde_error** error);
RONDE_API ronde_status ronde_reduce_scatter(ronde_engine* engine, const ronde_request* request,
                                            ronde_error** error);
/* Sends splits[r] rows to rank r, in the order of the input: the splits add up to the rows, may be
 * 0, and may differ between ranks and from call to call, as may the number of rows. Without splits
 * every rank gets as many. The result, the rows from rank 0, then those from rank 1, ..., belongs
 * to the work (ronde_work_output); ronde_work_received_splits says how many came from each. */
RONDE_API ronde_status ronde_all_to_all_async(ronde_engine* engine, const ronde_request* request,
                                              ronde_work** work, ronde_error** error);
/* Waits; *work is done and holds the result. */
RONDE_API ronde_status ronde_all_to_all(ronde_engine* engine, const ronde_request* request,
                                        ronde_work** work, ronde_error** error);
/* Only name, file, line, flags, device, stream and ready_event of the request are used. With a
 * device, on all ranks or on none, it begins behind the stream, and streams can wait for it. */
RONDE_API ronde_status ronde_barrier_async(ronde_engine* engine, const ronde_request* request,
                                           ronde_work** work, ronde_error** error);
RONDE_API ronde_status ronde_barrier(ronde_engine* engine, const ronde_request* request,
                                     ronde_error** error);

/* Groups: `requests` is an array of `count` requests (all of the struct_size of the first) that are
 * one unit: executed together, when all of them are ready on all ranks, as one work. If one of them
 * is refused (a bad argument, a name in flight) none is submitted. Every rank submits the same
 * tensors in the same order. The names are in flight as those of single requests are; dtype, op,
 * root, factors and compression are the same in the whole group; priority, file, line and flags are
 * those of the first request. In errors the group is called "group of <first name>". */
RONDE_API ronde_status ronde_grouped_allreduce_async(ronde_engine* engine,
                                                     const ronde_request* requests, int32_t count,
                                                     ronde_work** work, ronde_error** error);
RONDE_API ronde_status ronde_grouped_allreduce(ronde_engine* engine, const ronde_request* requests,
                                               int32_t count, ronde_error** error);
RONDE_API ronde_status ronde_grouped_broadcast_async(ronde_engine* engine,
                                                     const ronde_request* requests, int32_t count,
                                                     ronde_work** work, ronde_error** error);
RONDE_API ronde_status ronde_grouped_broadcast(ronde_engine* engine, const ronde_request* requests,
                                               int32_t count, ronde_error** error);

/* ---- works ---- */
/* Waits until the work is done; the waiting thread helps. After it has returned, memory of the
 * request is not touched again. A work may be waited for more than once. Bounded by the stall
 * deadline of the engine. */
RONDE_API ronde_status ronde_work_wait(ronde_work* work, ronde_error** error);
/* Waits at most timeout_ns nanoseconds; *done says whether the work is done. If it is, the result
 * is that of ronde_work_wait, otherwise RONDE_OK. */
RONDE_API ronde_status ronde_work_wait_for(ronde_work* work, int64_t timeout_ns, int32_t* done,
                                           ronde_error** error);
/* Of a tensor of a device: what is put into `stream` from now on begins when the work is over on
 * the device. Returns when the device has put the batch into a stream of its own, not when it is
 * over, and helps meanwhile; where tensors pass through host memory it waits for the end. The host
 * hears of an error of the device through the other waits, and memory of the request is the
 * caller's again after them, or in `stream`. For host memory: RONDE_INVALID_ARGUMENT. */
RONDE_API ronde_status ronde_work_wait_stream(ronde_work* work, void* stream, ronde_error** error);
/* 1 when the work is done (completed or failed), else 0. Never blocks. */
RONDE_API int32_t ronde_work_poll(const ronde_work* work);
/* The result of a completed allgather or all-to-all: valid until the work is released. shape has
 * `dimensions` entries; *dtype is a ronde_dtype. That of a device is memory of the device; it can
 * be asked for after ronde_work_wait_stream as well, and is there in streams that wait. */
RONDE_API ronde_status ronde_work_output(const ronde_work* work, const void** data,
                                         const int64_t** shape, int32_t* dimensions, int32_t* dtype,
                                         ronde_error** error);
/* The rows that a completed all-to-all received from each rank: *count numbers, one for each rank,
 * valid until the work is released. */
RONDE_API ronde_status ronde_work_received_splits(const ronde_work* work, const int64_t** splits,
                                                  int32_t* count, ronde_error** error);
/* The work may still be in flight: it goes on, and memory of the request is the engine's until it
 * is done. An error that nobody waits for is reported by ronde_engine_close. NULL is fine. */
RONDE_API void ronde_work_release(ronde_work* work);
/* Waits until nothing touches memory of the request any more, and releases the work: for whoever
 * frees that memory next and cannot go on with an error, as destructors do. A work that is not done
 * within grace_ns nanoseconds, or RONDE_GRACE_UNWIND or RONDE_GRACE_STALL, fails the job on all
 * ranks, with its name and its place; this returns as soon as that is known here. It sleeps where
 * the thread may not wait (see mpi_communicator), and does nothing in a forked child. NULL is
 * fine. */
RONDE_API void ronde_work_settle(ronde_work* work, int64_t grace_ns);
#define RONDE_GRACE_UNWIND (-1)       /* RONDE_UNWIND_GRACE_SECONDS: an exception is under way */
#define RONDE_GRACE_STALL (INT64_MAX) /* the stall deadline of the engine, as in ronde_work_wait \
                                       */

#ifdef __cplusplus
}
#endif

#endif /* RONDE_RONDE_H */
