/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between Ronde and a back end for a device ("plug-in"): a shared library that moves
 * and reduces tensors in the memory of that device. Ronde's own is libronde_cuda.so; another can be
 * written out of tree with this header alone (installed as <ronde/plugin.h>, C99).
 *
 * A plug-in exports one function, ronde_plugin_entry, which returns a table of functions. Ronde
 * looks for the library when an engine opens, before any tensor: first what RONDE_PLUGIN_PATH
 * names ("off": nothing), or else libronde_cuda.so beside libronde.so. It reads `version` and
 * `name`, which come first in every version of this interface, and refuses any other version by
 * name. What it refuses, or what finds no device, costs one line of the log: tensors in host memory
 * go their usual way.
 *
 * Who calls: open, close, execute, poll, release and the staging functions are called by one thread
 * at a time (whoever drives the engine); classify, check_stream and mark by any thread that
 * submits, check_stream and wait_on by any thread that waits, unmark, abort and free by any thread.
 * No function may block on another rank, but for open; none may throw. Functions that can fail
 * return a status, and on anything but RONDE_PLUGIN_OK and RONDE_PLUGIN_PENDING write one line that
 * says why into `text` (`text_bytes` with its final zero).
 *
 * The order of batches is the same on all ranks: it is that of the calls of execute. */
#ifndef RONDE_PLUGIN_H
#define RONDE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The names and types of C. */
/* NOLINTBEGIN(readability-identifier-naming,modernize-*) */

#define RONDE_PLUGIN_VERSION 1u
#define RONDE_PLUGIN_ENTRY "ronde_plugin_entry"

typedef enum ronde_plugin_status {
  RONDE_PLUGIN_OK = 0,
  RONDE_PLUGIN_PENDING = 1,     /* poll: not over yet; wait_on: ask again */
  RONDE_PLUGIN_UNAVAILABLE = 2, /* open: this machine has no such device, or not what it needs */
  /* What the caller gave; nothing was done, the engine lives on. Of execute: it cannot do this
   * operation, op, dtype or compression, and says so on every rank. */
  RONDE_PLUGIN_INVALID = 3,
  RONDE_PLUGIN_FAILED = 4 /* the device, or a peer: the job ends */
} ronde_plugin_status;

/* One engine of a plug-in, and one batch or copy under way: theirs alone. */
typedef struct ronde_plugin_engine ronde_plugin_engine;
typedef struct ronde_plugin_work ronde_plugin_work;
/* A moment in a stream, kept from submit until the tensor's batch is over. */
typedef struct ronde_plugin_mark ronde_plugin_mark;

/* What Ronde does for a plug-in. Valid until close has returned. */
typedef struct ronde_plugin_host {
  size_t struct_size;
  void* context; /* the first argument of the functions below */
  int32_t rank;
  int32_t size;
  int32_t rank_on_host; /* among the ranks of this host, from 0 */
  int32_t size_of_host;
  /* Inside open alone, on all ranks: everybody's bytes, by rank, into `all` (size * bytes). Bounded
   * by RONDE_START_TIMEOUT_SECONDS. */
  ronde_plugin_status (*allgather)(void* context, const void* mine, size_t bytes, void* all,
                                   char* text, size_t text_bytes);
  /* Something is over: Ronde will poll. From any thread, at any time, cheap; calls no plug-in
   * function. */
  void (*ring)(void* context);
  /* One line; level 0 is trace, 1 debug, 2 info, 3 warning, 4 error. From any thread. */
  void (*log)(void* context, int32_t level, const char* text);
} ronde_plugin_host;

/* What open found. */
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

/* Memory of this rank. What was put into its stream before it was submitted is over before anything
 * here is read or written: that is what the mark says. */
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
  /* no tensor, or one without elements and pointers: then it begins behind that one's stream */
  RONDE_PLUGIN_BARRIER = 5
} ronde_plugin_operation;

/* What one call of execute does: tensors of one operation, dtype, op and scale. Numbers of dtypes,
 * ops and compressions are those of ronde.h. */
typedef struct ronde_plugin_batch {
  size_t struct_size;
  uint64_t sequence; /* of the job, the same on all ranks */
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

/* Elements [begin, begin + elements) of a tensor, to or from host memory of allocate_host. Of no
 * elements it is over when the tensor is ready; pointers may be NULL then. */
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

  /* On all ranks, or on none that goes on: Ronde compares what they say. */
  ronde_plugin_status (*open)(const ronde_plugin_host* host, ronde_plugin_engine** engine,
                              ronde_plugin_info* info, char* text, size_t text_bytes);
  /* Ends what is under way if that can be done without another rank, and frees everything, marks
   * and works that were not given back among it; not what allocate gave. Survives a device whose
   * driver is shutting down. Nothing but free is called afterwards. */
  void (*close)(ronde_plugin_engine* engine);
  /* The job has failed: works under way end, poll says RONDE_PLUGIN_FAILED of them, and nobody is
   * left waiting on the device. Returns within a second. Afterwards nothing new is put on its way,
   * but all other functions may still be called. */
  void (*abort)(ronde_plugin_engine* engine, const char* why);

  /* What a pointer is; RONDE_PLUGIN_INVALID for one that this device does not know and the host
   * neither. */
  ronde_plugin_status (*classify)(ronde_plugin_engine* engine, const void* pointer,
                                  ronde_plugin_memory* memory, char* text, size_t text_bytes);
  /* RONDE_PLUGIN_INVALID for a stream that cannot be used now: under graph capture, of another
   * device. */
  ronde_plugin_status (*check_stream)(ronde_plugin_engine* engine, void* stream, char* text,
                                      size_t text_bytes);

  /* At submit, from any thread, without blocking: notes `ready_event` as it was recorded last, or,
   * if that is NULL, what has been put into `stream` so far. Both may be destroyed, recorded again
   * or captured afterwards. */
  ronde_plugin_status (*mark)(ronde_plugin_engine* engine, void* stream, void* ready_event,
                              ronde_plugin_mark** mark, char* text, size_t text_bytes);
  /* From any thread, until close; batches and copies that were given the mark keep what they need
   * of it. */
  void (*unmark)(ronde_plugin_engine* engine, ronde_plugin_mark* mark);

  /* Puts a batch on its way and returns at once. The batch and what it points at may go when it has
   * returned. NULL where info.has_collectives is 0 for ever. */
  ronde_plugin_status (*execute)(ronde_plugin_engine* engine, const ronde_plugin_batch* batch,
                                 ronde_plugin_work** work, char* text, size_t text_bytes);
  /* Whether it is over. Once it is, the memory is the caller's again. */
  ronde_plugin_status (*poll)(ronde_plugin_engine* engine, ronde_plugin_work* work, char* text,
                              size_t text_bytes);
  /* What is put into `stream` from now on begins when the work is over; the host does not wait.
   * RONDE_PLUGIN_PENDING: the work is not in a stream yet; ask again, ring is called when it is.
   * From any thread, until release. */
  ronde_plugin_status (*wait_on)(ronde_plugin_engine* engine, ronde_plugin_work* work, void* stream,
                                 char* text, size_t text_bytes);
  void (*release)(ronde_plugin_engine* engine, ronde_plugin_work* work);

  /* Staging. Host memory that the device copies to and from at full speed. */
  ronde_plugin_status (*allocate_host)(ronde_plugin_engine* engine, size_t bytes, void** memory,
                                       char* text, size_t text_bytes);
  void (*free_host)(ronde_plugin_engine* engine, void* memory);
  /* From the tensor's input, when it is ready; to its output. They return at once, as execute does.
   */
  ronde_plugin_status (*copy_out)(ronde_plugin_engine* engine, const ronde_plugin_copy* copy,
                                  ronde_plugin_work** work, char* text, size_t text_bytes);
  ronde_plugin_status (*copy_in)(ronde_plugin_engine* engine, const ronde_plugin_copy* copy,
                                 ronde_plugin_work** work, char* text, size_t text_bytes);

  /* Device memory for results whose size only Ronde knows. Freed by any thread, also after close,
   * and then with what allocate wrote into `device`. */
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
