/* SPDX-License-Identifier: Apache-2.0 */
/* A transport that cannot be opened, and, as the build names it, is wrong in one way: see
 * transport_library_test.cc. */
#include <stdio.h>

#include "collectives/transport/plugin.h"

static ronde_transport_status open_end(const ronde_transport_host* host, ronde_transport_end** end,
                                       ronde_transport_info* info, ronde_transport_error* error) {
  (void)host, (void)error;
#ifdef DESCRIPTOR /* to sleep on, but no function that goes with it */
  static char nothing;
  *end = (ronde_transport_end*)&nothing;
  info->fd = 0;
  return RONDE_TRANSPORT_OK;
#else
  (void)end, (void)info;
  (void)snprintf(error->text, sizeof error->text, "nobody has built this transport yet");
  return RONDE_TRANSPORT_UNAVAILABLE;
#endif
}
static ronde_transport_status address(ronde_transport_end* end, const void** bytes, size_t* length,
                                      ronde_transport_error* error) {
  (void)end, (void)bytes, (void)length, (void)error;
  return RONDE_TRANSPORT_FAILED;
}
static ronde_transport_status connect_end(ronde_transport_end* end, const void* const* addresses,
                                          const size_t* lengths, int32_t size,
                                          ronde_transport_error* error) {
  (void)end, (void)addresses, (void)lengths, (void)size, (void)error;
  return RONDE_TRANSPORT_FAILED;
}
static ronde_transport_status send_message(ronde_transport_end* end, int32_t peer, int32_t tag,
                                           const void* data, size_t length, uint64_t* request,
                                           ronde_transport_error* error) {
  (void)end, (void)peer, (void)tag, (void)data, (void)length, (void)request, (void)error;
  return RONDE_TRANSPORT_FAILED;
}
static ronde_transport_status test(ronde_transport_end* end, uint64_t request,
                                   ronde_transport_error* error) {
  (void)end, (void)request, (void)error;
  return RONDE_TRANSPORT_FAILED;
}
static int32_t outstanding(ronde_transport_end* end) {
  (void)end;
  return 0;
}
static void abandon(ronde_transport_end* end) { (void)end; }
static void close_end(ronde_transport_end* end, int64_t patience_ns) {
  (void)end, (void)patience_ns;
}

#ifdef RECEIVES
static ronde_transport_status receive_message(ronde_transport_end* end, int32_t peer, int32_t tag,
                                              void* data, size_t length, uint64_t* request,
                                              ronde_transport_error* error) {
  (void)end, (void)peer, (void)tag, (void)data, (void)length, (void)request, (void)error;
  return RONDE_TRANSPORT_FAILED;
}
#define RECEIVE receive_message
#else
#define RECEIVE NULL
#endif

#ifdef MEETS
static ronde_transport_status join(const ronde_meeting_request* request,
                                   ronde_meeting_party** party, ronde_meeting_info* info,
                                   ronde_transport_error* error) {
  (void)request, (void)party, (void)info, (void)error;
  return RONDE_TRANSPORT_FAILED;
}
static void ranks_here(ronde_meeting_party* party, int32_t* ranks) { (void)party, (void)ranks; }
static ronde_transport_status allgather(ronde_meeting_party* party,
                                        const ronde_meeting_round* round, const void* mine,
                                        size_t length, ronde_meeting_take take, void* context,
                                        ronde_transport_error* error) {
  (void)party, (void)round, (void)mine, (void)length, (void)take, (void)context, (void)error;
  return RONDE_TRANSPORT_FAILED;
}
static void abandon_party(ronde_meeting_party* party) { (void)party; }
static const ronde_meeting meeting = {.struct_size = sizeof(ronde_meeting),
                                      .join = join,
                                      .ranks_here = ranks_here,
                                      .allgather = allgather,
                                      .abandon = abandon_party};
#define MEETING &meeting
#else
#define MEETING NULL
#endif

#ifndef PLUGIN_VERSION
#define PLUGIN_VERSION RONDE_TRANSPORT_VERSION
#endif
#ifndef PLUGIN_BYTES
#define PLUGIN_BYTES sizeof(ronde_transport)
#endif

static const ronde_transport table = {.version = PLUGIN_VERSION,
                                      .name = PLUGIN_NAME,
                                      .struct_size = PLUGIN_BYTES,
                                      .library = "Open MPI v9.9.9",
                                      .mpi_family = 1,
                                      .meeting = MEETING,
                                      .open = open_end,
                                      .address = address,
                                      .connect = connect_end,
                                      .send = send_message,
                                      .receive = RECEIVE,
                                      .test = test,
                                      .outstanding = outstanding,
                                      .abandon = abandon,
                                      .close = close_end};

__attribute__((visibility("default"))) const ronde_transport* PLUGIN_ENTRY(void) { return &table; }
