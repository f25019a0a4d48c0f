/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between Ronde and a back end for a device ("plug-in"): a shared library that moves
 * and reduces tensors in the memory of that device. Ronde's own is libronde_cuda.so; another can be
 * written out of tree with this header alone (installed as <ronde/plugin.h>, C99).
 *
 * A plug-in exports one function, ronde_plugin_entry, which returns a table of functions. Ronde
 * looks for the library when an engine opens, before any tensor: first what RONDE_PLUGIN_PATH
 * names ("off": nothing), or else libronde_cuda.so beside libronde.so. It reads `version` and
 * `name`, which come first in every version of this interface, and refuses any other version by
 * name. A plug-in that is refused, or that finds no device, costs one line of the log: tensors in
 * host memory are not affected.
 *
 * Thread safety: open, close, execute, poll, release and the staging functions are called by one
 * thread at a time (the one that drives the engine); classify, check_stream and mark by any thread
 * that submits, check_stream and wait_on by any thread that waits, unmark, abort and free by any
 * thread. No function may block on another rank, but for open; none may throw. Functions that can
 * fail return a status, and on anything but RONDE_PLUGIN_OK and RONDE_PLUGIN_PENDING write one line
 * that says why into `text` (`text_bytes` with its final zero).
 *
 * The order of batches is the same on all ranks: it is that of the calls of execute. */
#ifndef RONDE_PLUGIN_H
#define RONDE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* This header has the names and types of C. */
/* NOLINTBEGIN(readability-identifier-naming,modernize-*) */

#define RONDE_PLUGIN_VERSION 1u
#define RONDE_PLUGIN_ENTRY "ronde_plugin_entry"

typedef enum ronde_plugin_status {
  RONDE_PLUGIN_OK = 0,
  RONDE_PLUGIN_PENDING = 1,     /* poll: not over yet; wait_on: ask again */
  RONDE_PLUGIN_UNAVAILABLE = 2, /* open: this machine has no such device, or not what it needs */
  /* An argument of the caller is wrong: nothing was done, and the engine lives on. From execute:
   * the device lacks this operation, op, dtype or compression, which every rank must answer alike.
   */
  RONDE_PLUGIN_INVALID = 3,
  RONDE_PLUGIN_FAILED = 4 /* the device or a peer has failed: the job ends */
} ronde_plugin_status;

/* One engine of a plug-in, and one batch or copy under way. Ronde never looks inside. */
typedef struct ronde_plugin_engine ronde_plugin_engine;
typedef struct ronde_plugin_work ronde_plugin_work;
/* A moment in a stream, kept from submit until the tensor's batch is over. */
typedef struct ronde_plugin_mark ronde_plugin_mark;

/* What Ronde does for a plug-in. It is valid until close has returned. */
typedef struct ronde_plugin_host {
  size_t struct_size;
  void* context; /* the first argument of the functions below */
  int32_t rank;
  int32_t size;
  int32_t rank_on_host; /* among the ranks of this host, from 0 */
  int32_t size_of_host;
  /* Gathers the bytes of all ranks, by rank, into `all` (size * bytes). Every rank calls it, and
   * only inside open. It ends after RONDE_START_TIMEOUT_SECONDS. */
  ronde_plugin_status (*allgather)(void* context, const void* mine, size_t bytes, void* all,
                                   char* text, size_t text_bytes);
  /* Notifies Ronde that something is over, so that it polls. May be called from any thread, at any
   * time; is cheap, and calls no function of the plug-in. */
  void (*ring)(void* context);
  /* Writes one line of the log; level 0 is trace, 1 debug, 2 info, 3 warning, 4 error. May be
   * called from any thread. */
  void (*log)(void* context, int32_t level, const char* text);
} ronde_plugin_host;

/* What open has found. */
typedef struct ronde_plugin_info {
  size_t struct_size;
  /* Whether execute may be called: the ranks' devices can reach each other. Otherwise Ronde stages
   * every batch through host memory: copy_out, the collective of host memory, copy_in. */
  int32_t has_collectives;
  int32_t device;     /* the one that this rank uses */
  char versions[256]; /* "CUDA 13.0, driver 580.65, NCCL 2.28.9, NVIDIA H200": for the log */
} ronde_plugin_info;

typedef enum ronde_plugin_memory_kind {
  RONDE_MEMORY_HOST = 0,
  RONDE_MEMORY_DEVICE = 1,
  RONDE_MEMORY_MANAGED = 2 /* both can read it */
} ronde_plugin_memory_kind;

typedef struct ronde_plugin_memory {
  int32_t kind;   /* a ronde_plugin_memory_kind */
  int32_t device; /* -1 for host memory */
} ronde_plugin_memory;

/* Memory of this rank. The plug-in reads and writes it after the mark: then all that was put into
 * its stream before it was submitted is over. */
typedef struct ronde_plugin_tensor {
  const void* input; /* equal to output in place; NULL where only the output is of this rank */
  void* output;      /* NULL where only the input is */
  int64_t elements;
  ronde_plugin_mark* ready; /* NULL: it is ready */
} ronde_plugin_tensor;

typedef enum ronde_plugin_operation {
  RONDE_PLUGIN_ALLREDUCE = 0,
  RONDE_PLUGIN_BROADCAST = 1,
  RONDE_PLUGIN_ALLGATHER = 2,      /* tensors are blocks by rank, each with an output */
  RONDE_PLUGIN_REDUCE_SCATTER = 3, /* tensors are blocks by rank, each with an input */
  /* twice as many tensors as ranks: an input for each rank, then an output from each */
  RONDE_PLUGIN_ALL_TO_ALL = 4,
  /* no tensor, or one without elements and pointers, after whose mark it begins */
  RONDE_PLUGIN_BARRIER = 5
} ronde_plugin_operation;

/* What one call of execute does: tensors of one operation, dtype, op and scale. Numbers of dtypes,
 * ops and compressions are those of ronde.h. */
typedef struct ronde_plugin_batch {
  size_t struct_size;
  uint64_t sequence; /* counts batches of the job; the same on all ranks */
  int32_t operation; /* a ronde_plugin_operation */
  int32_t dtype;
  int32_t op;
  int32_t root;
  int32_t compression;
  int32_t tensor_count;
  const ronde_plugin_tensor* tensors;
  double prescale;
  double postscale;
} ronde_plugin_batch;

/* A copy of elements [begin, begin + elements) of a tensor, to or from host memory of
 * allocate_host. A copy of no elements is over when the tensor is ready; its pointers may be NULL.
 */
typedef struct ronde_plugin_copy {
  size_t struct_size;
  const ronde_plugin_tensor* tensor;
  int64_t begin;
  int64_t elements;
  int32_t dtype;
  int32_t reserved;
  void* host;
} ronde_plugin_copy;

typedef struct ronde_plugin {
  /* These two come first in every version. */
  uint32_t version; /* RONDE_PLUGIN_VERSION */
  const char* name; /* "cuda" */
  size_t struct_size;

  /* Makes an engine. Every rank calls it, and Ronde compares the results: unless all succeed, none
   * is used. */
  ronde_plugin_status (*open)(const ronde_plugin_host* host, ronde_plugin_engine** engine,
                              ronde_plugin_info* info, char* text, size_t text_bytes);
  /* Ends what is under way if that can be done without another rank, and frees everything, also
   * marks and works that were not released, but not memory of allocate. It survives a device whose
   * driver is shutting down. Only free is called afterwards. */
  void (*close)(ronde_plugin_engine* engine);
  /* Ends works under way, since the job has failed: poll returns RONDE_PLUGIN_FAILED for them, and
   * no stream waits for them any more. Returns within a second. Afterwards nothing new is started,
   * but all functions may still be called. */
  void (*abort)(ronde_plugin_engine* engine, const char* why);

  /* Writes what a pointer points to; RONDE_PLUGIN_INVALID for memory that neither this device nor
   * the host knows. */
  ronde_plugin_status (*classify)(ronde_plugin_engine* engine, const void* pointer,
                                  ronde_plugin_memory* memory, char* text, size_t text_bytes);
  /* Checks a stream; RONDE_PLUGIN_INVALID if it cannot be used now: it is under graph capture, or
   * belongs to another device. */
  ronde_plugin_status (*check_stream)(ronde_plugin_engine* engine, void* stream, char* text,
                                      size_t text_bytes);

  /* Marks, when a tensor is submitted, `ready_event` as it was recorded last, or, if that is NULL,
   * what has been put into `stream` so far. Both may be destroyed, recorded again or captured
   * afterwards. May be called from any thread; must not block. */
  ronde_plugin_status (*mark)(ronde_plugin_engine* engine, void* stream, void* ready_event,
                              ronde_plugin_mark** mark, char* text, size_t text_bytes);
  /* Releases a mark. May be called from any thread, until close; batches and copies that were
   * started with the mark keep what they need of it. */
  void (*unmark)(ronde_plugin_engine* engine, ronde_plugin_mark* mark);

  /* Starts a batch and returns at once. The batch and what it points to may go when it has
   * returned. The pointer may be NULL in a plug-in whose info.has_collectives is always 0. */
  ronde_plugin_status (*execute)(ronde_plugin_engine* engine, const ronde_plugin_batch* batch,
                                 ronde_plugin_work** work, char* text, size_t text_bytes);
  /* Returns RONDE_PLUGIN_OK when the work is over; then the memory is the caller's again. */
  ronde_plugin_status (*poll)(ronde_plugin_engine* engine, ronde_plugin_work* work, char* text,
                              size_t text_bytes);
  /* Makes `stream` wait: what is put into it from now on begins when the work is over. The host
   * does not wait. RONDE_PLUGIN_PENDING: the work is not in a stream yet; Ronde asks again when the
   * plug-in rings. May be called from any thread, until release. */
  ronde_plugin_status (*wait_on)(ronde_plugin_engine* engine, ronde_plugin_work* work, void* stream,
                                 char* text, size_t text_bytes);
  void (*release)(ronde_plugin_engine* engine, ronde_plugin_work* work);

  /* Allocates host memory that the device copies to and from at full speed, for staging. */
  ronde_plugin_status (*allocate_host)(ronde_plugin_engine* engine, size_t bytes, void** memory,
                                       char* text, size_t text_bytes);
  void (*free_host)(ronde_plugin_engine* engine, void* memory);
  /* copy_out copies from the tensor's input, when that is ready, and copy_in to its output. They
   * return at once, as execute does. */
  ronde_plugin_status (*copy_out)(ronde_plugin_engine* engine, const ronde_plugin_copy* copy,
                                  ronde_plugin_work** work, char* text, size_t text_bytes);
  ronde_plugin_status (*copy_in)(ronde_plugin_engine* engine, const ronde_plugin_copy* copy,
                                 ronde_plugin_work** work, char* text, size_t text_bytes);

  /* Allocates device memory for results whose size only Ronde knows. Any thread frees it, also
   * after close, and passes on what allocate wrote into `device`. */
  ronde_plugin_status (*allocate)(ronde_plugin_engine* engine, size_t bytes, void** memory,
                                  int32_t* device, char* text, size_t text_bytes);
  void (*free)(int32_t device, void* memory);
} ronde_plugin;

typedef const ronde_plugin* (*ronde_plugin_entry_function)(void);

/* NOLINTEND(readability-identifier-naming,modernize-*) */

#ifdef __cplusplus
}
#endif

#endif /* RONDE_PLUGIN_H */
