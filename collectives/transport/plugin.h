/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between Ronde and a transport: a shared library that carries bytes between the
 * ranks of a job. Ronde's own are libronde_mpi.so and libronde_ucx.so; another can be written out
 * of tree with this header alone (installed as <ronde/transport_plugin.h>, C99).
 *
 * A plug-in exports one function, ronde_transport_entry, which returns a table of functions. Ronde
 * loads the library when a job needs it, from beside libronde.so or from RONDE_TRANSPORT_PATH, and
 * never unloads it. It reads `version` and `name`, which come first in every version of this
 * interface, and refuses any other version by name. The library is loaded locally: where what it
 * stands on loads parts of its own that look for its symbols (Open MPI does), the plug-in makes
 * them global itself. Loading it, the entry and `library` start nothing.
 *
 * How a job uses it:
 *   1. Something introduces the ranks: the `meeting` of this or of another plug-in, or Ronde itself
 * (a TCP address, a store of the program). It gives rank, size and an allgather of bytes.
 *   2. open makes this rank's end; address writes the bytes by which others reach it; the allgather
 * hands everybody's to everybody; connect takes them, by rank. A transport whose own meeting
 * introduced the ranks has empty addresses.
 *   3. send, receive and test carry messages. Ronde sleeps in an epoll on `info.fd` (after arm),
 * or, where there is none, polls at least every millisecond while a request is outstanding.
 *   4. abandon, after a failure; close, always.
 *
 * Messages between two ranks with one tag arrive in the order they were sent, and receives take
 * them in the order they were posted. An empty message is a message. Ronde's ranks agree on lengths
 * before they send. Memory passed to send and receive stays the caller's; it stays valid, and that
 * of a send is not written, until test has reported the request, or close has returned (see
 * info.writes_after_close).
 *
 * Thread safety: functions that take an end, or a party of a meeting, are called by one thread at a
 * time for each of them, not always the same one (unless party_info.any_thread is 0: then by the
 * one that joined). Any number of ends and parties may be used at once by different threads;
 * abandon may be called by any thread while another one is inside a function of the same end or
 * party. None may throw, and only join, allgather and close may wait for another rank, no longer
 * than they are told. In a forked child all but free functions fail (RONDE_TRANSPORT_UNAVAILABLE),
 * and none blocks.
 *
 * Functions that can fail return a status, and on anything but RONDE_TRANSPORT_OK and
 * RONDE_TRANSPORT_PENDING fill in `error`, which is never NULL; otherwise they leave it alone. */
#ifndef RONDE_TRANSPORT_PLUGIN_H
#define RONDE_TRANSPORT_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* This header has the names and types of C. */
/* NOLINTBEGIN(readability-identifier-naming,modernize-*) */

#define RONDE_TRANSPORT_VERSION 1u
#define RONDE_TRANSPORT_ENTRY "ronde_transport_entry"

typedef enum ronde_transport_status {
  RONDE_TRANSPORT_OK = 0,
  RONDE_TRANSPORT_PENDING = 1,     /* test: not over yet; arm, progress: see there */
  RONDE_TRANSPORT_UNAVAILABLE = 2, /* this machine or process lacks what it takes */
  RONDE_TRANSPORT_INVALID = 3,     /* an argument of the caller is wrong; nothing was done */
  RONDE_TRANSPORT_FAILED = 4,      /* the transport failed */
  RONDE_TRANSPORT_PEER_FAILED =
      5,                        /* error.rank has died or cannot be reached, or broke the start */
  RONDE_TRANSPORT_DEADLINE = 6, /* error.rank, or nobody in particular, took no part in time */
  RONDE_TRANSPORT_CLOSED = 7,   /* error.rank has left the job */
  RONDE_TRANSPORT_NO_MEMORY = 8,
  RONDE_TRANSPORT_SYSTEM = 9 /* a call of the operating system failed */
} ronde_transport_status;

typedef struct ronde_transport_error {
  size_t struct_size; /* set by the caller, and so is rank, to -1 */
  int32_t rank;       /* the rank at fault; -1: not known */
  int32_t reserved;
  char text[2032]; /* one line for people, ended by 0; it names both ranks of a message */
} ronde_transport_error;

/* One rank's end of the transport of one job, and one rank's part in a meeting. Ronde never looks
 * inside. */
typedef struct ronde_transport_end ronde_transport_end;
typedef struct ronde_meeting_party ronde_meeting_party;

/* ---- an end ---- */

/* What Ronde tells an end. It is valid until close has returned. */
typedef struct ronde_transport_host {
  size_t struct_size;
  int32_t rank;
  int32_t size;
  /* The part in this plug-in's own meeting that introduced these ranks; NULL if another one did. A
   * transport that can only carry between ranks that it introduced itself refuses NULL
   * (RONDE_TRANSPORT_UNAVAILABLE). */
  ronde_meeting_party* party;
  /* The network interfaces of this host that the user has chosen (RONDE_INTERFACE), as "eth0,eth1";
   * empty: any. What the user told the transport itself (UCX_NET_DEVICES) goes before it. */
  const char* interfaces;
  /* How long a peer may be silent before it counts as lost (RONDE_LINK_TIMEOUT_SECONDS), for
   * transports that can tell. */
  int64_t peer_timeout_ns;
  void* context; /* the first argument of log */
  /* Writes one line of the log; level 0 is trace, 1 debug, 2 info, 3 warning, 4 error. */
  void (*log)(void* context, int32_t level, const char* text);
} ronde_transport_host;

/* What open has found. Ronde sets struct_size and zeros the rest. */
typedef struct ronde_transport_info {
  size_t struct_size;
  /* Becomes readable when something has arrived for this end, or a send can go on; Ronde watches it
   * in an epoll and calls progress. It belongs to the end. -1: there is none, and outstanding
   * requests must be polled. */
  int32_t fd;
  /* 1: memory of requests that are outstanding at close may still be read and written, until the
   * process ends. 0: close ends them. */
  int32_t writes_after_close;
  int32_t largest_tag;    /* tags are 0 to this; at least 32767 */
  uint64_t largest_bytes; /* of one message */
} ronde_transport_info;

/* ---- a meeting ---- */

/* Takes the bytes of one rank. Called inside allgather, once for each rank, in the order of the
 * ranks. */
typedef void (*ronde_meeting_take)(void* context, int32_t rank, const void* bytes, size_t length);

typedef struct ronde_meeting_request {
  size_t struct_size;
  /* A communicator of the program: the family and the bits of its handle, as in
   * ronde_engine_options of ronde.h. Family 0: none, and the ranks are all that the launcher
   * started. */
  int32_t family;
  int32_t reserved;
  uint64_t communicator;
  int64_t patience_ns; /* all ranks must join within this time */
} ronde_meeting_request;

typedef struct ronde_meeting_info {
  size_t struct_size;
  int32_t rank;
  int32_t size;
  int32_t ranks_here; /* how many ranks share this host's memory, this one included */
  /* 0: only the thread that joined may call functions of the party and of the ends that it is given
   * to. */
  int32_t any_thread;
  /* 1: what the plug-in has started must end before the process does, so Ronde closes what the
   * program has left open when the process exits. */
  int32_t ends_with_process;
  int32_t reserved;
  char threads[64]; /* why any_thread is 0: "the program started MPI with MPI_THREAD_SINGLE" */
} ronde_meeting_info;

/* What the ranks do in an allgather, and why this rank cannot start, if so. */
typedef struct ronde_meeting_round {
  size_t struct_size;
  const char* activity; /* "exchanging addresses": for the error that names who took no part */
  const char* trouble;  /* empty: none. It reaches the others even if some rank never takes part */
  int32_t trouble_rank; /* of the rank at fault */
  int32_t reserved;
  int64_t patience_ns;
} ronde_meeting_round;

/* How a transport introduces the ranks that its own launcher started (MPI: those of mpirun). */
typedef struct ronde_meeting {
  size_t struct_size;

  /* Joins the others; all of them must. If it needs something in the process that cannot be
   * interrupted (the start of MPI), it ends the process at the deadline, with one line. `error`
   * names the ranks that did not come. The party lives until free. */
  ronde_transport_status (*join)(const ronde_meeting_request* request, ronde_meeting_party** party,
                                 ronde_meeting_info* info, ronde_transport_error* error);
  /* Writes the ranks on this host, ascending: info.ranks_here of them. */
  void (*ranks_here)(ronde_meeting_party* party, int32_t* ranks);
  /* Exchanges bytes, whose lengths may differ. Every rank calls it, in the same order. After an
   * error the party is abandoned. */
  ronde_transport_status (*allgather)(ronde_meeting_party* party, const ronde_meeting_round* round,
                                      const void* mine, size_t length, ronde_meeting_take take,
                                      void* context, ronde_transport_error* error);
  /* Gives up after a failure: other ranks may be dead. Neither the party nor the ends that it was
   * given to call what is below any more. */
  void (*abandon)(ronde_meeting_party* party);
  /* Leaves in order; all ranks do. Ends that the party was given to have been closed. The party
   * still has to be freed. */
  ronde_transport_status (*leave)(ronde_meeting_party* party, ronde_transport_error* error);
  /* Frees the party, and calls nothing below. */
  void (*free)(ronde_meeting_party* party);
} ronde_meeting;

/* ---- the table ---- */

typedef struct ronde_transport {
  /* These two come first in every version. */
  uint32_t version; /* RONDE_TRANSPORT_VERSION */
  const char* name; /* "mpi", "ucx" */
  size_t struct_size;

  /* What it stands on, as it was when the plug-in was built: "Open MPI 4.1.4", "UCX 1.13.1". */
  const char* library;
  /* For a transport over MPI: whose mpi.h it was compiled with, as ronde_mpi_family of ronde.h; 0
   * elsewhere. A process that has loaded another family's MPI is refused by Ronde, before any call
   * below. */
  int32_t mpi_family;
  int32_t reserved;
  /* NULL where the transport cannot introduce ranks. */
  const ronde_meeting* meeting;

  /* Makes an end. It waits for no other rank. */
  ronde_transport_status (*open)(const ronde_transport_host* host, ronde_transport_end** end,
                                 ronde_transport_info* info, ronde_transport_error* error);
  /* Points to the bytes by which other ranks reach this end; they stay until close, and may be
   * none. */
  ronde_transport_status (*address)(ronde_transport_end* end, const void** bytes, size_t* length,
                                    ronde_transport_error* error);
  /* Takes the addresses of all ranks, by rank; called once, on every rank. It waits for no other
   * rank. */
  ronde_transport_status (*connect)(ronde_transport_end* end, const void* const* addresses,
                                    const size_t* lengths, int32_t size,
                                    ronde_transport_error* error);

  /* Start a message. They return at once, and set `request`, which is not 0, and lasts until test
   * returns anything but RONDE_TRANSPORT_PENDING for it. peer: another rank, or this one. */
  ronde_transport_status (*send)(ronde_transport_end* end, int32_t peer, int32_t tag,
                                 const void* data, size_t length, uint64_t* request,
                                 ronde_transport_error* error);
  ronde_transport_status (*receive)(ronde_transport_end* end, int32_t peer, int32_t tag, void* data,
                                    size_t length, uint64_t* request, ronde_transport_error* error);
  /* Tells whether a request is over, and makes progress: whoever calls it again and again needs
   * nothing else. A message whose length is not that of its receive is an error.
   * RONDE_TRANSPORT_PEER_FAILED: the peer of this message has died. */
  ronde_transport_status (*test)(ronde_transport_end* end, uint64_t request,
                                 ronde_transport_error* error);
  /* How many requests have memory that the transport may still use: those that test has not
   * reported, and those that failed to start half-way. Cheap. */
  int32_t (*outstanding)(ronde_transport_end* end);
  /* Handles what has arrived; called when info.fd is readable, also while nothing is outstanding
   * (another rank connects). RONDE_TRANSPORT_PENDING: nothing had arrived. NULL in a transport
   * without descriptor. */
  ronde_transport_status (*progress)(ronde_transport_end* end, ronde_transport_error* error);
  /* Called before Ronde sleeps on info.fd: from now on the descriptor becomes readable with the
   * next event. RONDE_TRANSPORT_PENDING: something has been handled since the last call of arm, so
   * requests may be over, or is there now: Ronde calls progress, tests its requests again, and does
   * not sleep. NULL in a transport without descriptor. */
  ronde_transport_status (*arm)(ronde_transport_end* end, ronde_transport_error* error);

  /* Gives up after a failure: other ranks may be dead. Every function but close fails from now on,
   * and close waits for nobody. */
  void (*abandon)(ronde_transport_end* end);
  /* Ends and frees the end. If it was not abandoned, and nothing is outstanding, what was sent is
   * delivered first, for at most `patience_ns`. */
  void (*close)(ronde_transport_end* end, int64_t patience_ns);
} ronde_transport;

typedef const ronde_transport* (*ronde_transport_entry_function)(void);

/* NOLINTEND(readability-identifier-naming,modernize-*) */

#ifdef __cplusplus
}
#endif

#endif /* RONDE_TRANSPORT_PLUGIN_H */
