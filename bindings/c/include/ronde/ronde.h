/* SPDX-License-Identifier: Apache-2.0
 *
 * The C ABI of Ronde: allreduce for data-parallel training. It is one file, and longer than the
 * other sources may be, because it is the reference of all that the library exports.
 *
 * Every rank of a job opens an engine and submits tensors by name, in any order and from any
 * thread. A background coordinator finds out which of them are ready on every rank, batches them,
 * reduces them and completes the works.
 *
 *   ronde_engine* engine = NULL;
 *   ronde_error* error = NULL;
 *   if (ronde_engine_open(NULL, &engine, &error) != RONDE_OK) {
 *     fprintf(stderr, "%s\n", ronde_error_message(error));
 *     ronde_error_release(error);
 *     return 1;
 *   }
 *   ...
 *   ronde_engine_close(engine, NULL);
 *
 * What is said here holds for every function; the functions name what differs.
 *
 * Structs begin with struct_size, in bytes, so that they can grow: fill them with their ..._init
 * function, then set what you need. It passes on how large the struct is in the program that calls
 * it; a language without this header calls ..._init_sized with the size that it knows. A struct
 * that is smaller than the library's has the defaults in the missing fields. In a larger one, all
 * that the library does not know must be zero (else RONDE_UNSUPPORTED).
 *
 * Ownership. Each ..._open, ..._create, ..._allocate and ..._async hands out a handle that the
 * caller releases once, with the function named there. Arguments are copied: options, requests,
 * names, shapes and splits may go as soon as the call has returned. The memory of tensors is not
 * copied: from submission until its work is done it belongs to the engine, which reads the inputs
 * (they must not change) and writes the outputs; after that the engine never touches it again.
 *
 * Units. Shapes count elements, and splits count rows, which are entries of the first dimension.
 * Sizes of memory are in bytes, durations in nanoseconds. Settings (RONDE_..._SECONDS in the
 * environment) are in seconds.
 *
 * Thread safety: functions of an engine may be called from any number of threads at once, except
 * that ronde_engine_close must be the last call on it. A work, a buffer or an error belongs to one
 * thread at a time. All other functions may be called from any thread. In a forked child every
 * operation of the parent's engine is refused (RONDE_UNSUPPORTED); its handles may be released.
 *
 * Errors. A call that can fail returns a ronde_status. Where `error` is not NULL and the call
 * fails, *error receives an object that holds the whole text (NULL when there is no memory for it);
 * release it with ronde_error_release. On success *error is not touched, and on failure the other
 * results are not (but for `done` of ronde_work_wait_for). These groups of codes are named at the
 * functions:
 *
 *   argument codes  RONDE_INVALID_ARGUMENT: a pointer that must not be NULL is, or struct_size is
 *                   not set. RONDE_OUT_OF_MEMORY, RONDE_SYSTEM (no thread, no descriptor left),
 *                   RONDE_INTERNAL: any call that takes `error`.
 *   submit codes    The call is refused and submits nothing. The argument codes;
 *                   RONDE_INVALID_ARGUMENT: a field that can never work; RONDE_UNSUPPORTED: a field
 *                   this version, this job or its device cannot serve; RONDE_DUPLICATE_NAME;
 *                   RONDE_CLOSED: some rank has closed its engine; the job's failure.
 *   work codes      What became of the operation. RONDE_OK; of this operation alone, with the same
 *                   code on every rank: RONDE_MISMATCH, RONDE_INVALID_ARGUMENT (a gathered tensor
 *                   beyond 2^63 - 1 bytes), RONDE_UNSUPPORTED (an op that the device lacks) and
 *                   RONDE_CLOSED (a rank closed its engine without submitting it); or the job's
 *                   failure.
 *   the job's       The first error that ends the job for all ranks; every pending and every later
 *   failure         operation returns it, with the same text, until the engine is closed.
 *                   RONDE_PEER_FAILED: a rank died. RONDE_DEADLINE: an operation passed
 *                   RONDE_STALL_FAILURE_SECONDS or its deadline_ns, or all ranks waited for each
 *                   other for RONDE_DEADLOCK_GRACE_SECONDS. RONDE_TRANSPORT: MPI, a connection or a
 * device failed. RONDE_SYSTEM, RONDE_OUT_OF_MEMORY (for a gathered result, say), RONDE_INTERNAL;
 * and RONDE_INVALID_ARGUMENT for an all-to-all that sends a rank more than 2^63 - 1 bytes.
 *
 * When an operation fails the contents of its output are not specified; an input that is not also
 * the output keeps its own. */
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
typedef struct ronde_prepared ronde_prepared;
typedef struct ronde_line ronde_line;

typedef enum ronde_status {
  RONDE_OK = 0,
  RONDE_INVALID_ARGUMENT = 1, /* the call can never work as it is */
  RONDE_MISMATCH = 2,         /* the ranks disagree about this tensor; the engine lives on */
  RONDE_DUPLICATE_NAME = 3,   /* this name is already in flight on this rank */
  RONDE_CLOSED = 4,           /* an engine of the job has been closed */
  RONDE_PEER_FAILED = 5,      /* a rank died; every work fails from now on */
  RONDE_DEADLINE = 6,         /* a deadline passed */
  RONDE_UNSUPPORTED = 7,      /* not possible in this build, in this job or on this thread */
  RONDE_OUT_OF_MEMORY = 8,
  RONDE_SYSTEM = 9,     /* a call of the operating system failed */
  RONDE_TRANSPORT = 10, /* MPI, a connection between hosts, or a device failed */
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

/* How contributions become the result. Floating types of 16 bits are summed in f32, in rank order,
 * and rounded once on each host. */
typedef enum ronde_op {
  RONDE_AVERAGE = 0, /* the sum divided by the number of ranks; integers truncate towards zero.
                        Their sums wrap around: averages of 8 and 16 bits are refused, and those of
                        32 and 64 bits are wrong, with no error, where the sum of all ranks does
                        not fit in the type (two ranks' 3,000,000,000 as u32 give 852,516,352).
                        Average counters as f64, or as 64 bits */
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
/* `step` is the same on all ranks: where they differ all of them get RONDE_MISMATCH. */
#define RONDE_FLAG_STEP_AGREES 2u
/* An average by `weight`, sum of weight * x / sum of weight over all ranks: every rank sets it. */
#define RONDE_FLAG_WEIGHTED 4u

#define RONDE_DEVICE_CPU (-1)

/* Whose mpi.h a program was compiled with: handles of one MPI mean nothing to another. */
typedef enum ronde_mpi_family {
  RONDE_MPI_OPEN_MPI = 1,
  RONDE_MPI_MPICH = 2 /* with Intel MPI, MVAPICH and others of the same binary interface */
} ronde_mpi_family;

/* Takes the bytes that a store has for a key. */
typedef void (*ronde_store_take)(void* taker, const void* bytes, size_t size);

/* A store of keys and values that the program brings (LibTorch's c10d::Store, etcd, Redis, a shared
 * folder), over which ranks meet that nothing else introduces. One engine uses a store: another one
 * needs another, or keys with another prefix. Keys are texts of at most 128 letters, digits, '/',
 * '-' and '_'; values have at most some hundred bytes for each rank of the job, more where devices
 * are used. Whoever can write to the store can take part in the job. Both functions are called by
 * the thread that opens the engine, return a ronde_status, and throw nothing. */
typedef struct ronde_store {
  size_t struct_size;
  void* context; /* their first argument */
  /* Puts a value there, for every rank to get. */
  ronde_status (*set)(void* context, const char* key, const void* bytes, size_t size);
  /* Waits, for timeout_ns at most, until some rank has put a value there, calls take(taker, ...)
   * with it once and returns RONDE_OK; RONDE_DEADLINE: there was none in that time. */
  ronde_status (*get)(void* context, const char* key, int64_t timeout_ns, ronde_store_take take,
                      void* taker);
  /* Younger than the fields above; NULL: there is none. Says in words why the last call has failed;
   * the text, or NULL, is read before the next call, and told to the other ranks. */
  const char* (*failure)(void* context);
} ronde_store;

typedef struct ronde_engine_options {
  size_t struct_size;
  /* The communicator whose ranks are the job's; both fields 0: MPI_COMM_WORLD. Only
   * ronde_engine_options_set_communicator of <ronde/mpi.h> sets them: the handle's bits, and a
   * ronde_mpi_family. It is duplicated and stays the caller's.
   *
   * If MPI has not been started Ronde starts it; without mpirun the job has one rank and uses no
   * MPI. A program that has started MPI itself below MPI_THREAD_MULTIPLE must not call MPI while
   * works are in flight, since the background thread may be in MPI then. Below
   * MPI_THREAD_SERIALIZED the engine is caller-driven where operations need MPI (several hosts, or
   * RONDE_ALGORITHM named): it has no background thread, works go on only inside waits,
   * ronde_work_poll() and ronde_engine_close(), and only in the thread that opened the engine: the
   * waits and the close of another get RONDE_UNSUPPORTED. */
  uint64_t mpi_communicator;
  int32_t mpi_family;
  /* A job of engines in one process (for tests) instead of MPI, and the rank of this engine. The
   * job may be released when ronde_engine_open has returned. */
  int32_t local_job_rank;
  ronde_local_job* local_job;
  uint64_t flags; /* must be 0 */
  /* Younger than the fields above; a program that was built without them has the defaults.
   * The program itself says which rank of how many this is, whatever started it; size 0: it does
   * not, and what started it says so. The ranks meet at `meet`, "host:port" of rank 0 (over hosts
   * they need a secret, in RONDE_JOB_SECRET or RONDE_JOB_SECRET_FILE), or over a store; where both
   * are NULL, at RONDE_MEET. No communicator and no local_job beside them. */
  int32_t rank;
  int32_t size;
  const char* meet;
  const ronde_store* store; /* used until ronde_engine_open returns */
  /* Younger than the fields above. Which engine of its process this is, where it has several: the
   * engines of one name meet, in whatever order the threads of each rank open them (a thread waits
   * for its own until all ranks have opened it). NULL or "": none, and such engines meet in the
   * order in which each rank opens them. Engines of a communicator or a store are told apart by
   * that; a name of theirs must be the same on all ranks. A local job ignores it. */
  const char* name;
} ronde_engine_options;

/* One tensor that is ready here. Operations ignore the fields that they do not use, but every enum
 * must hold one of its values. */
typedef struct ronde_request {
  size_t struct_size;
  const char* name;  /* the same on all ranks; 1 to 4,096 bytes */
  const void* input; /* dense, row-major; NULL: in place, that is `output` */
  void* output; /* as large as the input, and equal to it or disjoint; a reduce-scatter's and an
                   allgather's: see there; NULL for an all-to-all (see ronde_work_output) */
  const int64_t* shape; /* elements of each dimension; where one is 0 the pointers may be NULL */
  int32_t dimensions;   /* entries of shape; 0, with shape NULL, is a scalar, one element */
  int32_t dtype;        /* a ronde_dtype */
  int32_t op;           /* allreduce, reduce-scatter: a ronde_op */
  int32_t root;         /* broadcast: the rank whose values all ranks get */
  double prescale;      /* where there is an op, floating types: multiplies every contribution; 1 */
  double postscale;     /* ... and the result; 1 */
  int32_t device;       /* where the memory is: RONDE_DEVICE_CPU, or a device (see "devices") */
  void* stream;         /* with a device: where the input was written; NULL is the default stream */
  void* ready_event;    /* ... and the event after which it may be read; NULL: all before submit */
  int32_t priority;     /* higher goes into a batch first; the coordinator takes rank 0's value */
  int64_t deadline_ns;  /* so long after the call the operation has ended, or the job fails with
                           RONDE_DEADLINE; 0: RONDE_STALL_FAILURE_SECONDS */
  uint64_t flags;       /* RONDE_FLAG_...; 0 */
  const char* file;     /* the place of the call in the caller's source, for errors; may be NULL */
  int32_t line;
  int32_t reserved; /* must be 0 */
  /* Younger than the fields above; a program that was built without them has the defaults. */
  int32_t compression;   /* a ronde_compression; where there is an op, for f32 only */
  int32_t split_count;   /* entries of splits: 0, or the number of ranks */
  const int64_t* splits; /* rows of each rank: see ronde_reduce_scatter and ronde_all_to_all */
  /* Which step of the training this belongs to, from 0; -1: none is given. The n-th submission of
   * a name on one rank is paired with the n-th on every other: with RONDE_FLAG_STEP_AGREES a rank
   * that has left out a step is found in that step. Without it the number is compared only when a
   * rank has closed its engine and another one waits: then the error says who has taken fewer. */
  int64_t step;
  /* Younger than the fields above. With RONDE_FLAG_WEIGHTED: the weight of this rank's values in an
   * average (RONDE_AVERAGE of a floating type), such as the number of samples that they come from:
   * finite and not below 0. It may differ from rank to rank, from step to step and within a group,
   * and costs no new agreement. Where the weights of all ranks add up to 0 the operation fails on
   * every rank with RONDE_INVALID_ARGUMENT. The values are multiplied in the type of the sum,
   * before it, so sums of f16 can overflow: keep weights small there. Without the flag it must
   * be 1. */
  double weight;
} ronde_request;

/* What an engine has done since it was opened. Calls that meet in lines on the board (prepared
 * ones, and small ones that block and are made again and again) are not in it. */
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
  /* Of payload_bytes: used where they lay on the board, without a copy. */
  uint64_t in_place_bytes;
} ronde_statistics;

/* How late a rank was with a tensor (calls that meet in lines are not in it, either): a step counts
 * where the others have waited for this rank for a millisecond or more, from when they had
 * submitted the tensor. A rank that comes last because it has waited for another one itself (for a
 * message, or in a process set) is that one's victim. */
typedef struct ronde_late {
  const char* tensor; /* or group; owned by the engine until it is closed */
  int32_t rank;
  int32_t reserved;
  uint64_t steps;
  uint64_t total_nanoseconds; /* of those steps */
  uint64_t worst_nanoseconds;
  uint64_t steps_as_victim; /* they do not count above */
} ronde_late;

/* Returns the version of the library, "0.1.0": a constant string. */
RONDE_API const char* ronde_version(void);
/* Returns a few words for a status, "invalid argument" for one: a constant string, "unknown code"
 * for a value that is none. */
RONDE_API const char* ronde_status_name(ronde_status status);

/* ---- errors ----
 * What a failing call leaves in *error. The functions accept NULL, so that they may be called where
 * there was no memory for the object. */

/* Returns the whole text in one line, owned by the error; "" for NULL. */
RONDE_API const char* ronde_error_message(const ronde_error* error);
/* Returns "file:line", where the error was first noticed, owned by the error; may be empty. */
RONDE_API const char* ronde_error_place(const ronde_error* error);
/* Returns the code that the call returned; RONDE_OK for NULL. */
RONDE_API ronde_status ronde_error_status(const ronde_error* error);
/* Returns the rank at fault, or -1 where none is known. */
RONDE_API int32_t ronde_error_rank(const ronde_error* error);
/* Frees the error and its texts. NULL is fine. Never fails. */
RONDE_API void ronde_error_release(ronde_error* error);

/* ---- jobs in one process ---- */

/* Makes a job of `size` ranks, 1 to 64, whose engines all live in this process: for tests. Open one
 * engine per rank, each in a thread of its own. Release it with ronde_local_job_release.
 * Returns: argument codes; RONDE_INVALID_ARGUMENT for another size; RONDE_SYSTEM (no descriptors
 * left). */
RONDE_API ronde_status ronde_local_job_create(int32_t size, ronde_local_job** job,
                                              ronde_error** error);
/* Gives up the caller's share of the job; its engines keep theirs and go on. NULL is fine. Never
 * fails. */
RONDE_API void ronde_local_job_release(ronde_local_job* job);

/* Checks that this process is alone by what has started it (ronde_engine_open): a program that
 * trains within one process would otherwise train once in each process that a launcher has started,
 * and all would write the same files. RONDE_ALONE=1 makes it alone. Opens nothing; any thread.
 * Returns: RONDE_UNSUPPORTED where the launcher has started several, or this is a child of a rank;
 * RONDE_INVALID_ARGUMENT where its variables make no sense. */
RONDE_API ronde_status ronde_require_alone(ronde_error** error);

/* ---- engines ---- */

/* Sets every field but struct_size to 0; as ronde_engine_options_init_sized. Never fails. */
RONDE_API void ronde_store_init_sized(ronde_store* store, size_t struct_size);
/* The same for a struct of this program's size. */
static inline void ronde_store_init(ronde_store* store) {
  ronde_store_init_sized(store, sizeof *store);
}
/* Sets the first struct_size bytes of the struct to the defaults, with struct_size as its size, and
 * touches nothing behind them. NULL, and a struct_size below that of size_t, do nothing. Any
 * thread. Never fails. */
RONDE_API void ronde_engine_options_init_sized(ronde_engine_options* options, size_t struct_size);
/* The same for a struct of this program's size. */
static inline void ronde_engine_options_init(ronde_engine_options* options) {
  ronde_engine_options_init_sized(options, sizeof *options);
}
/* Joins the job, whose settings are read from the environment, and waits until every rank has
 * opened its engine, at most RONDE_START_TIMEOUT_SECONDS. `options` may be NULL: all defaults.
 * The engines of a process are opened in one order on all ranks, or named (options->name); those
 * that are opened at the same time, by several threads, are named.
 * Which rank of which job this process is, the options say, or whatever has started it: MPI's
 * mpirun; torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT); TF_CONFIG; Slurm's srun;
 * RONDE_RANK, RONDE_SIZE and RONDE_MEET; of several the one that runs inside the others. Without
 * any it is a job of one, as with RONDE_ALONE=1. In a job of several ranks it leaves
 * RONDE_RANK_PROCESS in the environment (setenv, before threads of its own run: none of the program
 * should use the environment then), by which a child of this process knows that the words of the
 * launcher are not meant for it; and where ranks meet at a meeting point or over a store it takes
 * RONDE_JOB_SECRET out of the environment, and keeps it for further engines. Release *engine with
 * ronde_engine_close. Returns: argument codes; RONDE_INVALID_ARGUMENT: a setting is wrong or
 * differs between ranks, the variables of a launcher are incomplete, two launchers contradict each
 * other, the ranks have different secrets or sizes, or open different engines or two without a name
 * at once, or the communicator (of another MPI than the library's, null, or an inter-communicator),
 * local_job_rank or MPI's state does not fit; RONDE_UNSUPPORTED: unknown flags, no MPI in this
 * build, an MPI without threads, or a child of a rank; RONDE_DEADLINE: a rank did not open its
 * engine in time; RONDE_PEER_FAILED: a rank died or failed to open; RONDE_TRANSPORT, RONDE_SYSTEM.
 * An error of one rank reaches all. */
RONDE_API ronde_status ronde_engine_open(const ronde_engine_options* options, ronde_engine** engine,
                                         ronde_error** error);
/* Completes what can be completed (waits for it at most RONDE_SHUTDOWN_TIMEOUT_SECONDS), fails the
 * rest, and releases the engine whatever it returns. Works and buffers stay valid until they are
 * released. NULL is fine. Call it before MPI_Finalize. On a thread that may not drive a
 * caller-driven engine it fails the job. Where Ronde started MPI, or the ranks met without it, an
 * engine that is never closed is closed when the process exits, after the destructors of the
 * program's static objects; if a work is in flight then, the job fails.
 * Returns: RONDE_OK when no work failed while it closed, or before without anybody waiting for it,
 * also for NULL and in a forked child; the code of the first work that did; the job's failure,
 * RONDE_DEADLINE when a batch did not end or the coordinator did not answer; RONDE_UNSUPPORTED on a
 * thread that may not drive a caller-driven engine; RONDE_INVALID_ARGUMENT: MPI has been finalised;
 * RONDE_TRANSPORT from leaving MPI. */
RONDE_API ronde_status ronde_engine_close(ronde_engine* engine, ronde_error** error);

/* Returns the rank of this engine in the job, from 0; -1 when engine is NULL. */
RONDE_API int32_t ronde_rank(const ronde_engine* engine);
/* Returns the number of ranks of the job; -1 when engine is NULL. */
RONDE_API int32_t ronde_size(const ronde_engine* engine);
/* Returns the rank among those of this host, from 0; -1 when engine is NULL. */
RONDE_API int32_t ronde_local_rank(const ronde_engine* engine);
/* Returns the number of ranks on this host; -1 when engine is NULL. */
RONDE_API int32_t ronde_local_size(const ronde_engine* engine);

/* Sets every field to 0; as ronde_engine_options_init_sized. Never fails. */
RONDE_API void ronde_statistics_init_sized(ronde_statistics* statistics, size_t struct_size);
/* The same for a struct of this program's size. */
static inline void ronde_statistics_init(ronde_statistics* statistics) {
  ronde_statistics_init_sized(statistics, sizeof *statistics);
}
/* Writes the counters of this rank, as many bytes as statistics->struct_size says. The counters are
 * read one after another while the engine works, so they need not fit together exactly.
 * Returns: argument codes; RONDE_UNSUPPORTED for a larger struct that is not zero at its end. */
RONDE_API ronde_status ronde_engine_statistics(const ronde_engine* engine,
                                               ronde_statistics* statistics, ronde_error** error);
/* Writes who was late with what, the worst in total first, at most `capacity` of them, to `late`,
 * which may be NULL where that is 0; *count: how many there are. Rank 0 knows it, where all
 * arrivals are counted; on other ranks there is nothing. A tensor's first step is not counted.
 * Returns: argument codes. */
RONDE_API ronde_status ronde_engine_late(const ronde_engine* engine, ronde_late* late,
                                         size_t capacity, size_t* count, ronde_error** error);

/* Gives the table of ranks, the same on every rank, as text for people, owned by the engine until
 * ronde_engine_close: a line of headings and one line for each rank, without a newline at the end.
 *   const char* text = NULL;
 *   if (ronde_engine_describe(engine, &text, &error) == RONDE_OK) puts(text);
 * For two hosts with two ranks each:
 *   rank  host  address    pid  talks to
 *      0  n1    10.0.0.1  4711  rank 1 in shared memory; rank 2 over MPI; rank 2 over TCP (control)
 *      1  n1    10.0.0.1  4712  rank 0 in shared memory; rank 3 over MPI
 *      2  n2    10.0.0.2  1203  rank 3 in shared memory; rank 0 over MPI; rank 0 over TCP (control)
 *      3  n2    10.0.0.2  1204  rank 2 in shared memory; rank 1 over MPI
 * Columns are as wide as their contents, with two blanks between them, and only the last has blanks
 * inside. The address is the one that the host uses for control between hosts, and "-" on a single
 * host; a list of ranks that would be long is a number of them. Rows of an all-to-all over several
 * hosts also pass over MPI between any two ranks. Where a plug-in serves tensors of devices a last
 * line says which. Asks no other rank; works also after the job has failed.
 * Returns: argument codes; RONDE_UNSUPPORTED in a forked child. */
RONDE_API ronde_status ronde_engine_describe(const ronde_engine* engine, const char** text,
                                             ronde_error** error);

/* ---- the timeline ----
 * What the ranks do, as a file of Chrome's trace format (chrome://tracing, ui.perfetto.dev): for
 * each tensor how long it waited for others, and for which rank (known from its second step on),
 * how long in the queue and in its batch; the batches and their phases; the program's own marks.
 * All ranks of a host write one file, each what it does while its timeline is on; the host with
 * rank 0 the file of that path, host n <path>.host<n>, and
 *   jq -s add trace.json trace.json.host* > all.json
 * makes one of them. Times are those of rank 0's host: the clocks of the hosts are compared when
 * the engines open, and the event "clock" says how far this may be wrong. The file is whole after
 * every write, also where ranks are killed. A job begins its file anew; starting again with the
 * same path goes on with it. RONDE_TIMELINE=<path> starts it when the engine opens. */

/* flags of ronde_engine_start_timeline */
#define RONDE_TIMELINE_CYCLES 1u /* marks where batches begin: "CYCLE_START", Horovod's word */

/* Starts the timeline of this rank; asks no other rank. Where it is on with this path nothing
 * happens.
 * Returns: argument codes; RONDE_INVALID_ARGUMENT: it is on with another path; RONDE_SYSTEM: the
 * file cannot be written; RONDE_UNSUPPORTED: unknown flags, or a forked child. */
RONDE_API ronde_status ronde_engine_start_timeline(ronde_engine* engine, const char* path,
                                                   uint64_t flags, ronde_error** error);
/* Writes what is left and ends the timeline; ronde_engine_close does so too. Where it is off
 * nothing happens. Where the file cannot be written a line is logged, the timeline is off, and the
 * job goes on.
 * Returns: argument codes; RONDE_SYSTEM: the file could not be written; RONDE_UNSUPPORTED in a
 * forked child. */
RONDE_API ronde_status ronde_engine_stop_timeline(ronde_engine* engine, ronde_error** error);

typedef enum ronde_mark {
  RONDE_MARK_INSTANT = 0,
  RONDE_MARK_BEGIN = 1, /* of something in the calling thread; inside it others may begin and end */
  RONDE_MARK_END = 2    /* of what has begun there last */
} ronde_mark;

/* Marks this moment in the timeline; while it is off nothing happens.
 *   ronde_engine_mark(engine, RONDE_MARK_BEGIN, "forward", NULL);
 * Returns: argument codes; RONDE_INVALID_ARGUMENT: no ronde_mark; RONDE_UNSUPPORTED in a forked
 * child. */
RONDE_API ronde_status ronde_engine_mark(ronde_engine* engine, int32_t mark, const char* name,
                                         ronde_error** error);

/* ---- memory on the board ----
 * Memory that the ranks of this host share. An allreduce in place of a tensor that lies in such
 * memory on every rank is done where it lies, without a copy; of a reduce-scatter and an allgather
 * the inputs are read there, and the outputs may lie anywhere. The result has the same bits.
 * Nothing else differs from other memory, and ranks may mix the two.
 *
 * A buffer is engine memory: while a work on it is in flight the other ranks write into it, and
 * after the job has failed they may do so for a moment longer. It stays mapped until it is
 * released, also when its engine has been closed or has failed.
 *
 *   ronde_buffer* buffer = NULL;
 *   if (ronde_buffer_allocate(engine, 1000 * sizeof(float), &buffer, &error) == RONDE_OK) {
 *     float* gradient = ronde_buffer_memory(buffer);
 *     ...                                  (write it, and pass it as `output` of requests)
 *     ronde_buffer_release(buffer);
 *   }
 */

/* Takes `bytes` bytes, which may be 0, aligned to 64 bytes and with unspecified contents; physical
 * memory is taken as it is first written. Release *buffer with ronde_buffer_release.
 * Returns: argument codes; RONDE_OUT_OF_MEMORY: a rank would have more than RONDE_BUFFER_BYTES
 * (64 MiB in a local job); RONDE_UNSUPPORTED in a forked child; the job's failure. */
RONDE_API ronde_status ronde_buffer_allocate(ronde_engine* engine, size_t bytes,
                                             ronde_buffer** buffer, ronde_error** error);
/* The same, but where the board has no room, or the engine is over, the buffer is memory of this
 * process alone: tensors in it are copied, and an engine says once, at info, that there was no
 * room. Returns: argument codes; RONDE_OUT_OF_MEMORY: the process has no memory left. */
RONDE_API ronde_status ronde_buffer_allocate_anywhere(ronde_engine* engine, size_t bytes,
                                                      ronde_buffer** buffer, ronde_error** error);
/* Returns 1 if the buffer lies on the board, else 0; 0 for NULL. */
RONDE_API int32_t ronde_buffer_is_on_board(const ronde_buffer* buffer);
/* Returns the first byte of the buffer, owned by it; NULL for NULL. */
RONDE_API void* ronde_buffer_memory(const ronde_buffer* buffer);
/* Gives the memory back, from any thread, before or after the engine is closed; no work on it may
 * be in flight. NULL is fine. In a forked child nothing happens to the memory, which is the
 * parent's. Never fails. */
RONDE_API void ronde_buffer_release(ronde_buffer* buffer);

/* ---- devices ----
 * Tensors may lie in the memory of a device that a plug-in serves (<ronde/plugin.h>):
 * libronde_cuda.so beside libronde.so, or the library that RONDE_PLUGIN_PATH names (off: none). It
 * is found when the engines open, on all ranks or on none; one line of the log (level info) names
 * it with its versions, or the reason why it is not used. Then `device` of a request is the number
 * of the device that this rank uses, and every pointer of the request is memory of it, or managed
 * memory, which may be declared as either. A wrong declaration is RONDE_INVALID_ARGUMENT, and a
 * device that nothing serves RONDE_UNSUPPORTED. The ranks agree on whether a tensor is on a device;
 * they need not agree on which.
 *
 * The engine reads and writes memory of the request after ready_event, as it was recorded last, or,
 * without one, after all that had been put into the stream. The call that submits looks at both,
 * and nothing does later: then the event may be recorded again, and both may be destroyed or
 * captured. A stream under graph capture is refused (RONDE_INVALID_ARGUMENT). After submit the host
 * need not wait: ronde_work_wait_stream has a stream wait instead. Batches of devices run in the
 * same order on all ranks; a batch that the device cannot do (it lacks the op) fails alone, with
 * RONDE_UNSUPPORTED.
 *
 *   request.device = 0;                      (the CUDA device of this rank)
 *   request.stream = stream;                 (a cudaStream_t: the kernel that writes is in it)
 *   status = ronde_allreduce_async(engine, &request, &work, &error);
 *   status = ronde_work_wait_stream(work, stream, &error);     (later kernels see the result)
 */

/* ---- operations ----
 * An _async form submits and returns at once, with a work to wait for and to release
 * (ronde_work_release); each returns the submit codes. The other forms also wait, as
 * ronde_work_wait does, and return the submit codes and the work codes.
 *
 *   float gradient[1000];
 *   int64_t shape[1] = {1000};
 *   ronde_request request;
 *   ronde_request_init(&request);
 *   request.name = "fc1/weight";
 *   request.output = gradient;               (in place: input stays NULL)
 *   request.shape = shape;
 *   request.dimensions = 1;
 *   ronde_work* work = NULL;
 *   status = ronde_allreduce_async(engine, &request, &work, &error);
 *   ...                                      (compute something else)
 *   status = ronde_work_wait(work, &error);
 *   ronde_work_release(work);
 */

/* What a rank gives to an operation, or gets from it. Blocks are rows: parts along the first
 * dimension. */
typedef enum ronde_extent {
  RONDE_NOTHING = 0,
  RONDE_TENSOR = 1, /* a whole tensor of the same shape on every rank */
  RONDE_BLOCK = 2,  /* the block of this rank */
  RONDE_BLOCKS = 3  /* a block for each rank, or from each; as an output the work's own */
} ronde_extent;

/* One operation; for programs that treat all of them alike. */
typedef struct ronde_operation {
  const char* name;   /* "reduce_scatter", as in ronde_reduce_scatter */
  int32_t input;      /* a ronde_extent */
  int32_t output;     /* a ronde_extent */
  int32_t reduces;    /* 1: it uses op, factors and compression */
  int32_t has_root;   /* 1: it uses root */
  int32_t has_groups; /* 1: there is ronde_grouped_... */
} ronde_operation;

/* Returns row `index` of the table of operations, from 0; NULL behind the last. It stays valid, and
 * newer libraries may have more rows and longer ones. Never fails.
 *   for (int32_t i = 0; ronde_operation_info(i) != NULL; i++) puts(ronde_operation_info(i)->name);
 */
RONDE_API const ronde_operation* ronde_operation_info(int32_t index);

/* Sets the defaults (f32, average, factors 1, host memory, everything else 0 or NULL); as
 * ronde_engine_options_init_sized. Never fails. */
RONDE_API void ronde_request_init_sized(ronde_request* request, size_t struct_size);
/* The same for a struct of this program's size. */
static inline void ronde_request_init(ronde_request* request) {
  ronde_request_init_sized(request, sizeof *request);
}

/* Reduces the inputs of all ranks, element by element, into the output of every rank. Shape, dtype,
 * op, factors and compression are the same on all ranks.
 * Returns: submit codes. */
RONDE_API ronde_status ronde_allreduce_async(ronde_engine* engine, const ronde_request* request,
                                             ronde_work** work, ronde_error** error);
/* ronde_allreduce_async that waits. Returns: submit codes, work codes. */
RONDE_API ronde_status ronde_allreduce(ronde_engine* engine, const ronde_request* request,
                                       ronde_error** error);
/* ronde_allreduce of `count` elements at `data`, in place, in host memory and without factors: the
 * common case in one call. Shapes agree with those of requests whose one dimension is `count`.
 *   status = ronde_allreduce_flat(engine, "fc1/weight", gradient, 1000, RONDE_F32, RONDE_AVERAGE,
 *                                 &error);
 * Returns: submit codes (RONDE_INVALID_ARGUMENT for a count below 0), work codes. */
RONDE_API ronde_status ronde_allreduce_flat(ronde_engine* engine, const char* name, void* data,
                                            int64_t count, ronde_dtype dtype, ronde_op op,
                                            ronde_error** error);
/* Copies the input of rank `root` into the output of every rank.
 *   request.root = 0;
 *   status = ronde_broadcast(engine, &request, &error);
 * Returns: submit codes. */
RONDE_API ronde_status ronde_broadcast_async(ronde_engine* engine, const ronde_request* request,
                                             ronde_work** work, ronde_error** error);
/* ronde_broadcast_async that waits. Returns: submit codes, work codes. */
RONDE_API ronde_status ronde_broadcast(ronde_engine* engine, const ronde_request* request,
                                       ronde_error** error);
/* Concatenates the inputs of all ranks, in rank order, along the first dimension, which may differ
 * between ranks. The result belongs to the work: ronde_work_output. Where `output` is given too, in
 * host memory, it has room for as many rows of each rank as this one gives, and takes the result
 * where every rank gives as many; the input may lie in it, at this rank's rows. ronde_work_output
 * says where the result lies.
 * Returns: submit codes. */
RONDE_API ronde_status ronde_allgather_async(ronde_engine* engine, const ronde_request* request,
                                             ronde_work** work, ronde_error** error);
/* ronde_allgather_async that waits: *work is done and holds the result; release it. After an error
 * there is no work.
 *   request.input = rows;
 *   status = ronde_allgather(engine, &request, &work, &error);
 *   status = ronde_work_output(work, &data, &all_shape, &dimensions, &dtype, &error);
 *   ...                                      (copy what is at data)
 *   ronde_work_release(work);
 * Returns: submit codes, work codes. */
RONDE_API ronde_status ronde_allgather(ronde_engine* engine, const ronde_request* request,
                                       ronde_work** work, ronde_error** error);
/* Reduces, and leaves each rank its rows of the result in `output`: rank r gets splits[r] rows (the
 * same splits on every rank; they add up to the rows), or, without splits, an even share, where the
 * first ranks get one row more if there is a rest. The input is the whole tensor and must be given.
 * In place means that `output` points at this rank's rows in `input`; otherwise the two are
 * disjoint. Over several hosts rows are summed in the order of the host that gets them: the bits
 * depend on the splits too, and need not be those of an allreduce.
 *   request.input = gradient;                (1000 elements; of 4 ranks each gets 250)
 *   request.output = mine;
 *   status = ronde_reduce_scatter(engine, &request, &error);
 * Returns: submit codes. */
RONDE_API ronde_status ronde_reduce_scatter_async(ronde_engine* engine,
                                                  const ronde_request* request, ronde_work** work,
                                                  ronde_error** error);
/* ronde_reduce_scatter_async that waits. Returns: submit codes, work codes. */
RONDE_API ronde_status ronde_reduce_scatter(ronde_engine* engine, const ronde_request* request,
                                            ronde_error** error);
/* Sends splits[r] rows to rank r, in the order of the input: the splits add up to the rows, may be
 * 0, and may differ between ranks and from call to call, as may the number of rows. Without splits
 * every rank gets the same number, which must divide the rows. The result, the rows from rank 0,
 * then those from rank 1, ..., belongs to the work: ronde_work_output, and
 * ronde_work_received_splits for how many rows came from each rank.
 * Returns: submit codes. */
RONDE_API ronde_status ronde_all_to_all_async(ronde_engine* engine, const ronde_request* request,
                                              ronde_work** work, ronde_error** error);
/* ronde_all_to_all_async that waits: *work is done and holds the result; release it. After an error
 * there is no work.
 *   int64_t splits[2] = {3, 1};              (3 of the 4 rows to rank 0, 1 to rank 1)
 *   request.splits = splits;
 *   request.split_count = 2;
 *   status = ronde_all_to_all(engine, &request, &work, &error);
 *   status = ronde_work_received_splits(work, &received, &count, &error);
 * Returns: submit codes, work codes. */
RONDE_API ronde_status ronde_all_to_all(ronde_engine* engine, const ronde_request* request,
                                        ronde_work** work, ronde_error** error);
/* Is done when every rank has submitted it. Of the request only name, file, line, flags, device,
 * stream and ready_event are used. With a device, on all ranks or on none, it begins after what is
 * in the stream, and streams can wait for it.
 *   request.name = "epoch";
 *   status = ronde_barrier(engine, &request, &error);
 * Returns: submit codes. */
RONDE_API ronde_status ronde_barrier_async(ronde_engine* engine, const ronde_request* request,
                                           ronde_work** work, ronde_error** error);
/* ronde_barrier_async that waits. Returns: submit codes, work codes. */
RONDE_API ronde_status ronde_barrier(ronde_engine* engine, const ronde_request* request,
                                     ronde_error** error);

/* Ranks with other numbers of steps. A rank that has no more to give joins: it takes part in
 * nothing more of its own until all ranks have joined, which ends the work of each, and the others'
 * operations go on without it. Averages are over the ranks that have not joined
 * (RONDE_JOIN_AVERAGE=all: over all; those by weights: by the weights); it gives no rows to an
 * allgather, what an all-to-all sends it and its rows of a reduce-scatter are dropped, and a
 * broadcast from it is RONDE_INVALID_ARGUMENT for the others, as are its own submissions until the
 * join has ended. In the memory of devices nothing goes on without it (RONDE_UNSUPPORTED). What it
 * has submitted before is finished with its values, whether or not it waits for that. Where nobody
 * joins this costs nothing; after a join each name costs one full request. A join has no deadline
 * of its own: the operations of the others have. for (; has_batch(); step()) ... int32_t last = -1;
 *   status = ronde_join(engine, &last, &error);
 * Returns: submit codes. */
RONDE_API ronde_status ronde_join_async(ronde_engine* engine, ronde_work** work,
                                        ronde_error** error);
/* ronde_join_async that waits. *last_rank, where it is not NULL, is the last rank that has joined,
 * the same on all ranks. Returns: submit codes, work codes. */
RONDE_API ronde_status ronde_join(ronde_engine* engine, int32_t* last_rank, ronde_error** error);
/* The same of a work of ronde_join_async that has ended. Returns: argument codes;
 * RONDE_INVALID_ARGUMENT for any other work. */
RONDE_API ronde_status ronde_work_last_joined(const ronde_work* work, int32_t* last_rank,
                                              ronde_error** error);

/* Groups: `requests` is an array of `count` requests, at least one (all of the struct_size of the
 * first), that are one unit: executed together, when all of them are ready on all ranks, as one
 * work. If one of them is refused none is submitted. Every rank submits the same tensors in the
 * same order. The names are in flight as those of single requests are; dtype, op, root, factors and
 * compression are the same in the whole group; priority, deadline_ns, file, line and flags are
 * those of the first request. Outputs must not overlap with other memory of the group. In errors
 * the group is called "group of <first name>". ronde_request both[2]; (initialised, filled in as
 * for ronde_allreduce) status = ronde_grouped_allreduce(engine, both, 2, &error);
 */

/* ronde_allreduce_async of each tensor of a group. Returns: submit codes. */
RONDE_API ronde_status ronde_grouped_allreduce_async(ronde_engine* engine,
                                                     const ronde_request* requests, int32_t count,
                                                     ronde_work** work, ronde_error** error);
/* ronde_grouped_allreduce_async that waits. Returns: submit codes, work codes. */
RONDE_API ronde_status ronde_grouped_allreduce(ronde_engine* engine, const ronde_request* requests,
                                               int32_t count, ronde_error** error);
/* ronde_broadcast_async of each tensor of a group. Returns: submit codes. */
RONDE_API ronde_status ronde_grouped_broadcast_async(ronde_engine* engine,
                                                     const ronde_request* requests, int32_t count,
                                                     ronde_work** work, ronde_error** error);
/* ronde_grouped_broadcast_async that waits. Returns: submit codes, work codes. */
RONDE_API ronde_status ronde_grouped_broadcast(ronde_engine* engine, const ronde_request* requests,
                                               int32_t count, ronde_error** error);

/* ---- works ----
 * The handle of an operation in flight. It keeps what it needs of the engine, so it may be waited
 * for, asked and released after ronde_engine_close. While a work is not done the waits return
 * RONDE_UNSUPPORTED in a forked child and on a thread that may not drive a caller-driven engine. */

/* Waits until the work is done; the waiting thread helps. It ends with the stall deadline of the
 * engine at the latest (RONDE_STALL_FAILURE_SECONDS and a few seconds). May be called again.
 * Returns: argument codes, work codes; RONDE_UNSUPPORTED as above. */
RONDE_API ronde_status ronde_work_wait(ronde_work* work, ronde_error** error);
/* Waits at most timeout_ns nanoseconds (below 0: as 0); *done becomes 1 when the work is done, even
 * if it failed, else 0.
 * Returns: RONDE_OK when the work is not done yet; otherwise as ronde_work_wait. */
RONDE_API ronde_status ronde_work_wait_for(ronde_work* work, int64_t timeout_ns, int32_t* done,
                                           ronde_error** error);
/* The same for a caller that looks at something else every so often, signals say, and then waits
 * on: where all ranks wait for each other, it counts as one that waits (see
 * RONDE_DEADLOCK_GRACE_SECONDS), while ronde_work_wait_for may be followed by anything.
 * Returns: as ronde_work_wait_for. */
RONDE_API ronde_status ronde_work_wait_slice(ronde_work* work, int64_t slice_ns, int32_t* done,
                                             ronde_error** error);
/* Has a stream wait for a tensor of a device: what is put into `stream` from now on begins when the
 * work is over on the device. The call returns when the device has put the batch into a stream of
 * its own, not when it is over, and helps meanwhile; where tensors pass through host memory it
 * waits for the end. The other waits report an error of the device that comes later; memory of the
 * request is the caller's again after them, or in `stream`.
 * Returns: argument codes; RONDE_INVALID_ARGUMENT: the tensor is in host memory, or the stream is
 * being captured or is another device's; RONDE_UNSUPPORTED as above, and also when the work is
 * done; the work codes, if the end is known. */
RONDE_API ronde_status ronde_work_wait_stream(ronde_work* work, void* stream, ronde_error** error);
/* Returns 1 when the work is done (completed or failed), else 0, and 0 for NULL. Never blocks. In a
 * caller-driven engine the thread that opened it makes progress here, one step for each call; on
 * another thread, and where there is a background thread, this only asks. */
RONDE_API int32_t ronde_work_poll(const ronde_work* work);
/* Gives the result of an allgather or an all-to-all that is done, owned by the work until that is
 * released, or in the output of the request: *shape has *dimensions entries, *dtype is a
 * ronde_dtype. The result of a device is memory of the device; it is known after
 * ronde_work_wait_stream as well, and streams that wait may read it.
 * Returns: argument codes; RONDE_INVALID_ARGUMENT: the work is not done, or its operation has no
 * result of its own; the work codes of one that failed. */
RONDE_API ronde_status ronde_work_output(const ronde_work* work, const void** data,
                                         const int64_t** shape, int32_t* dimensions, int32_t* dtype,
                                         ronde_error** error);
/* Gives the rows that an all-to-all received from each rank: *count numbers, one for each rank,
 * owned by the work until that is released.
 * Returns: as ronde_work_output; RONDE_INVALID_ARGUMENT for other operations. */
RONDE_API ronde_status ronde_work_received_splits(const ronde_work* work, const int64_t** splits,
                                                  int32_t* count, ronde_error** error);
/* Frees the handle and the result it owns. The work may still be in flight: it goes on, and its
 * memory must stay valid until it is done. An error that nobody has waited for is reported by
 * ronde_engine_close. NULL is fine. Never fails. */
RONDE_API void ronde_work_release(ronde_work* work);
/* ronde_work_wait_for and, where the work is done and well, ronde_work_release: *work becomes NULL
 * then. Otherwise *work stays, and a wait says what became of it; so it does where the result of an
 * allgather or an all-to-all lies elsewhere than at `output` (NULL: wherever).
 * Returns: as ronde_work_wait_for. */
RONDE_API ronde_status ronde_work_finish(ronde_work** work, int64_t timeout_ns, const void* output,
                                         ronde_error** error);
/* How long ronde_work_settle waits: RONDE_UNWIND_GRACE_SECONDS, for a caller that an exception
 * unwinds, or the stall deadline of the engine, as ronde_work_wait does. */
#define RONDE_GRACE_UNWIND (-1)
#define RONDE_GRACE_STALL INT64_MAX
/* Waits until nothing touches memory of the request any more, whatever the result, and releases the
 * work: for a caller that frees that memory next and cannot go on with an error, as destructors do.
 * A work that is not done within grace_ns nanoseconds, or one of the graces above, fails the job on
 * all ranks, with its name and place, or the process set that it is of alone, and then this returns
 * as soon as nothing touches the memory. (Where a set's batches pass over a transport, those that
 * have been decided end first; a set that has not failed within 5 s fails the job.)
 * On a thread that may not drive the engine it sleeps until the work is done; in a forked child it
 * only releases. NULL is fine. Never fails. */
RONDE_API void ronde_work_settle(ronde_work* work, int64_t grace_ns);

/* ---- prepared operations ----
 * An operation on the same memory that is run again and again: the ranks agree on it once. On one
 * host, the job's or a process set's, one that moves at most 4,096 bytes a rank then takes less
 * than a microsecond: ranks meet in lines of shared memory, and the call has no name, no lock and
 * no allocation; it counts in no statistics. All others are the ordinary operation of that name.
 * Results have the same bits.
 *
 *   ronde_prepared* sum = NULL;
 *   status = ronde_prepare(engine, RONDE_ALLREDUCE, &request, &sum, &error);
 *   for (;;) status = ronde_prepared_run(sum, &error);
 *   ronde_prepared_release(sum);
 *
 * Every rank runs it equally often. Its order against other operations is free between start and
 * wait. A rank that does not come is named after RONDE_STALL_WARNING_SECONDS, and fails the job
 * after RONDE_STALL_FAILURE_SECONDS. With deadline_ns in its request each call has ended so long
 * after its start: in lines a call that has not ends the operation on all ranks, RONDE_DEADLINE
 * with the rank, and the engine lives on; an ordinary one fails the job. One that joins ends those
 * in lines for all ranks (RONDE_MISMATCH, with its number). A prepared operation belongs to one
 * thread at a time, and may outlive its engine, when all calls return RONDE_CLOSED. */

/* The rows of ronde_operation_info, by name. */
typedef enum ronde_operation_kind {
  RONDE_ALLREDUCE = 0,
  RONDE_BROADCAST = 1,
  RONDE_ALLGATHER = 2,
  RONDE_BARRIER = 3,
  RONDE_REDUCE_SCATTER = 4,
  RONDE_ALL_TO_ALL = 5 /* not to be prepared: its rows differ from call to call */
} ronde_operation_kind;

/* Agrees on an operation, as the first call of the ordinary one does; every rank calls it, and
 * waits. The request is copied; its memory must stay until the release. The result of an allgather
 * is in ronde_prepared_output alone. Release *prepared with ronde_prepared_release.
 * Returns: submit codes, work codes; RONDE_UNSUPPORTED: an all-to-all, or memory of a device. */
RONDE_API ronde_status ronde_prepare(ronde_engine* engine, ronde_operation_kind operation,
                                     const ronde_request* request, ronde_prepared** prepared,
                                     ronde_error** error);
/* Begins a call, for which the input is read. The root of a broadcast may wait here until all ranks
 * have read the call before the last.
 * Returns: argument codes, submit codes, work codes; RONDE_INVALID_ARGUMENT: the call before has
 * not been waited for. */
RONDE_API ronde_status ronde_prepared_start(ronde_prepared* prepared, ronde_error** error);
/* Waits for the end of the call, and writes the output.
 * Returns: argument codes, work codes; RONDE_INVALID_ARGUMENT: there is no call. */
RONDE_API ronde_status ronde_prepared_wait(ronde_prepared* prepared, ronde_error** error);
/* Both, one after the other.
 * Returns: as the two. */
RONDE_API ronde_status ronde_prepared_run(ronde_prepared* prepared, ronde_error** error);
/* Gives the result of an allgather, owned by the operation, until the next start: `rows` of what
 * the ranks gave, one after the other.
 * Returns: argument codes; RONDE_INVALID_ARGUMENT: no call has ended, or it is no allgather. */
RONDE_API ronde_status ronde_prepared_output(const ronde_prepared* prepared, const void** data,
                                             int64_t* rows, ronde_error** error);
/* Frees the operation; no call may be in flight. NULL is fine. Never fails. */
RONDE_API void ronde_prepared_release(ronde_prepared* prepared);

/* ---- open lines ----
 * A line is where the ranks of one host meet for small blocking calls whose form may differ from
 * one to the next, as those of an MPI communicator do: nothing is agreed before, and each rank
 * shows the others what it calls. Results have the bits of the ordinary operations, and the calls
 * count in no statistics. A line belongs to one thread at a time. */

/* The most that a rank gives in a call. */
#define RONDE_LINE_BYTES 4096

typedef struct ronde_line_call {
  size_t struct_size;
  /* Everything about the call that all ranks must have alike, so that calls that differ have other
   * numbers. */
  uint64_t form;
  int32_t operation; /* RONDE_ALLREDUCE, RONDE_BROADCAST or RONDE_BARRIER */
  int32_t dtype;     /* a ronde_dtype */
  int32_t op;        /* a ronde_op */
  int32_t root;
  int64_t elements;
  const void* input; /* may be the output */
  void* output;
} ronde_line_call;

/* Opens a line; every rank calls it, and waits. *line becomes NULL where there is none: over
 * several hosts, in a process set, and where the board has no room. Release it with
 * ronde_line_release.
 * Returns: submit codes, work codes. */
RONDE_API ronde_status ronde_line_open(ronde_engine* engine, const char* name, ronde_line** line,
                                       ronde_error** error);
/* Begins a call, for which the input is read. Where it is refused this rank may make another one
 * in its place.
 * Returns: argument codes, submit codes; RONDE_INVALID_ARGUMENT: the call before has not ended. */
RONDE_API ronde_status ronde_line_start(ronde_line* line, const ronde_line_call* call,
                                        ronde_error** error);
/* Waits at most timeout_ns nanoseconds. *met becomes 1 where all ranks have made equal calls: the
 * output is written. 2: the forms differ, on all ranks; nothing is written. 0: not all are here.
 * Returns: argument codes, work codes; RONDE_INVALID_ARGUMENT: there is no call. */
RONDE_API ronde_status ronde_line_wait_for(ronde_line* line, int64_t timeout_ns, int32_t* met,
                                           ronde_error** error);
/* Frees the line; no call may be in flight. NULL is fine. Never fails. */
RONDE_API void ronde_line_release(ronde_line* line);

/* ---- process sets ----
 * A process set is an engine of some ranks of another one, numbered anew in ascending order. All
 * operations are possible in it, under names of its own (a name may be in flight in several sets at
 * once), and it makes progress by itself: a set that stands still delays no other. Thread,
 * descriptors and the memory of Buffers are the job's. In errors its ranks have their numbers in
 * the set, whose name stands before them; the job's failure has those of the job, and is the set's.
 * Tensors of a device pass through host memory.
 *
 *   int32_t ranks[2] = {0, 2};
 *   ronde_engine* set = NULL;
 *   status = ronde_engine_subset(engine, ranks, 2, "tensor parallel", 0, NULL, 0, &set, &error);
 *   ...                                      (on rank 1: an engine of size 0)
 *   ronde_engine_close(set, NULL);
 *
 * Close a set with ronde_engine_close on each of its ranks; closing the job's engine closes its
 * sets first (their handles are released as ever). A set of a set is one of the job,
 * "<set>/<name>". */

/* Opens the process set of `count` ranks of the engine, in whatever order; each of them calls it,
 * with the same name (1 to 256 bytes) and ranks, and waits for the others. Its ranks may open
 * several sets in any order from several threads, not in one. A rank that is not among them may
 * call it too: it waits for nobody, and gets an engine whose size is 0 and whose rank is -1, which
 * refuses every operation (RONDE_INVALID_ARGUMENT). Sets of one name that have a rank in common are
 * not open at once. deadline_ns: how long the others may take from the call on; 0:
 * RONDE_STALL_FAILURE_SECONDS; the first of the ranks' deadlines counts. file, line: the place of
 * the call in the caller's source, for errors; may be NULL.
 * Returns: argument codes; RONDE_INVALID_ARGUMENT: no ranks, one that is not there or there twice,
 * no name, a deadline below 0; RONDE_DUPLICATE_NAME: this rank has one of that name;
 * RONDE_MISMATCH: the ranks gave different ranks; RONDE_DEADLINE: one did not come in time (a
 * warning comes as for a tensor); RONDE_CLOSED: one has closed its engine; RONDE_OUT_OF_MEMORY: no
 * room left of RONDE_BUFFER_BYTES; RONDE_UNSUPPORTED: 1,023 sets are open, or more than the tags of
 * the transport can tell apart; the job's failure. */
RONDE_API ronde_status ronde_engine_subset(ronde_engine* engine, const int32_t* ranks,
                                           int32_t count, const char* name, int64_t deadline_ns,
                                           const char* file, int32_t line, ronde_engine** set,
                                           ronde_error** error);
/* Every rank of the engine calls it: those of one color get the process set "<name>.<color>", and
 * those of a color below 0 an engine of size 0. Ranks that have joined are in none.
 * Returns: as ronde_engine_subset; submit codes, work codes. */
RONDE_API ronde_status ronde_engine_split(ronde_engine* engine, int64_t color, const char* name,
                                          const char* file, int32_t line, ronde_engine** set,
                                          ronde_error** error);
/* Returns the rank of the job that is `rank` in this process set; `rank` itself for an engine that
 * is none; -1 where there is no such rank, and for NULL. */
RONDE_API int32_t ronde_rank_of_job(const ronde_engine* engine, int32_t rank);

/* ---- messages between two ranks ----
 * By rank and tag, of any size, many in flight, from any thread, beside the operations of all
 * ranks: no other rank takes part, and none but the two is woken. Messages of one sender, receiver
 * and tag are received in the order in which they were sent. A small one (32 KiB) is sent at once,
 * and waits at the receiver; a larger one is sent when the receiver has it: the receiver copies it
 * out of a ronde_buffer, and other memory goes through the board, which both ranks do together, or
 * by the kernel's copy, whichever was faster (RONDE_MESSAGES names one). Both ranks name the same
 * dtype and number of elements: otherwise both get RONDE_MISMATCH, and the messages after it go on.
 * (The send of a small one is done by then, so that rank gets the error from ronde_engine_close,
 * and in its log.) Memory of a device gets RONDE_UNSUPPORTED. A rank that does not answer is named
 * after RONDE_STALL_WARNING_SECONDS, and fails the job after RONDE_STALL_FAILURE_SECONDS. Between
 * hosts messages go by the leaders of the hosts, the lowest rank of each, whose close waits for all
 * ranks of the job.
 *
 *   ronde_message message;
 *   ronde_message_init(&message);
 *   message.rank = 1;
 *   message.data = activations;
 *   message.count = 1024;
 *   message.dtype = RONDE_F32;
 *   status = ronde_send(engine, &message, &error);          (rank 0; rank 1 calls ronde_recv)
 */

/* As the rank of a receive: whoever sends first with this tag. */
#define RONDE_ANY_RANK (-1)

typedef struct ronde_message {
  size_t struct_size;
  int32_t rank;        /* the other rank; of a receive RONDE_ANY_RANK, too */
  int32_t dtype;       /* a ronde_dtype */
  int64_t tag;         /* any number */
  void* data;          /* dense; a send only reads it. NULL where count is 0 */
  int64_t count;       /* elements */
  int32_t device;      /* RONDE_DEVICE_CPU */
  int32_t line;        /* with `file`: the place of the call in the caller's source, for errors */
  const char* file;    /* may be NULL */
  uint64_t flags;      /* RONDE_FLAG_WILL_WAIT, or 0 */
  int64_t deadline_ns; /* as in a ronde_request */
} ronde_message;

/* Sets the first struct_size bytes to the defaults: rank 0, RONDE_DEVICE_CPU, 0 elsewhere; as
 * ronde_request_init_sized. Never fails. */
RONDE_API void ronde_message_init_sized(ronde_message* message, size_t struct_size);
/* The same for a struct of this program's size. */
static inline void ronde_message_init(ronde_message* message) {
  ronde_message_init_sized(message, sizeof *message);
}

/* Begins to send a message, and returns at once. The memory is the engine's until the work is done.
 * Release *work with ronde_work_release.
 * Returns: argument codes; RONDE_INVALID_ARGUMENT: no such rank; RONDE_UNSUPPORTED: the memory is
 * a device's; RONDE_OUT_OF_MEMORY: the arena (RONDE_BUFFER_BYTES) has
 * no room for a channel; RONDE_CLOSED: this engine has been closed, or the other rank's; the work
 * codes, once the job has failed. */
RONDE_API ronde_status ronde_send_async(ronde_engine* engine, const ronde_message* message,
                                        ronde_work** work, ronde_error** error);
/* Begins to receive a message, as ronde_send_async. Returns: as ronde_send_async. */
RONDE_API ronde_status ronde_recv_async(ronde_engine* engine, const ronde_message* message,
                                        ronde_work** work, ronde_error** error);
/* ronde_send_async that waits. Returns: as ronde_send_async; work codes. */
RONDE_API ronde_status ronde_send(ronde_engine* engine, const ronde_message* message,
                                  ronde_error** error);
/* ronde_recv_async that waits. source: who has sent it; may be NULL.
 * Returns: as ronde_send_async; work codes. */
RONDE_API ronde_status ronde_recv(ronde_engine* engine, const ronde_message* message,
                                  int32_t* source, ronde_error** error);
/* Gives the rank that has sent the message of a receive that is done.
 * Returns: argument codes; RONDE_INVALID_ARGUMENT: the work is not done, or is no receive; the work
 * codes of one that failed. */
RONDE_API ronde_status ronde_work_source(const ronde_work* work, int32_t* source,
                                         ronde_error** error);

#ifdef __cplusplus
}
#endif

#endif /* RONDE_RONDE_H */
