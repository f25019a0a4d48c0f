/* SPDX-License-Identifier: Apache-2.0 */
/* A plug-in that is wrong in one way, which the build names: see plugin_library_test.cc. */
#include "collectives/device/plugin.h"

static ronde_plugin_status open_engine(const ronde_plugin_host* host, ronde_plugin_engine** engine,
                                       ronde_plugin_info* info, char* text, size_t text_bytes) {
  (void)host, (void)engine, (void)info, (void)text, (void)text_bytes;
  return RONDE_PLUGIN_UNAVAILABLE;
}
static void close_engine(ronde_plugin_engine* engine) { (void)engine; }
static void abort_engine(ronde_plugin_engine* engine, const char* why) { (void)engine, (void)why; }

#ifndef PLUGIN_VERSION
#define PLUGIN_VERSION RONDE_PLUGIN_VERSION
#endif
#ifndef PLUGIN_BYTES
#define PLUGIN_BYTES sizeof(ronde_plugin)
#endif
#ifndef PLUGIN_NAME
#define PLUGIN_NAME "bad"
#endif

static const ronde_plugin table = {.version = PLUGIN_VERSION,
                                   .name = PLUGIN_NAME,
                                   .struct_size = PLUGIN_BYTES,
                                   .open = open_engine,
                                   .close = close_engine,
                                   .abort = abort_engine};

__attribute__((visibility("default"))) const ronde_plugin* PLUGIN_ENTRY(void) { return &table; }
