/* SPDX-License-Identifier: Apache-2.0
 * An outsider's back end, which finds no device: written with the installed header alone. */
#include <ronde/plugin.h>
#include <string.h>

static ronde_plugin_status open_engine(const ronde_plugin_host* host, ronde_plugin_engine** engine,
                                       ronde_plugin_info* info, char* text, size_t text_bytes) {
  const char why[] = "nobody has built the device yet";
  (void)host, (void)engine, (void)info;
  if (text_bytes >= sizeof why) memcpy(text, why, sizeof why);
  return RONDE_PLUGIN_UNAVAILABLE;
}

/* Nothing of it is ever called. */
static void close_engine(ronde_plugin_engine* engine) { (void)engine; }
static void abort_engine(ronde_plugin_engine* engine, const char* why) { (void)engine, (void)why; }
static ronde_plugin_status classify(ronde_plugin_engine* engine, const void* pointer,
                                    ronde_plugin_memory* memory, char* text, size_t text_bytes) {
  (void)engine, (void)pointer, (void)memory, (void)text, (void)text_bytes;
  return RONDE_PLUGIN_INVALID;
}
static ronde_plugin_status check_stream(ronde_plugin_engine* engine, void* stream, char* text,
                                        size_t text_bytes) {
  (void)engine, (void)stream, (void)text, (void)text_bytes;
  return RONDE_PLUGIN_INVALID;
}
static ronde_plugin_status mark(ronde_plugin_engine* engine, void* stream, void* ready_event,
                                ronde_plugin_mark** made, char* text, size_t text_bytes) {
  (void)engine, (void)stream, (void)ready_event, (void)made, (void)text, (void)text_bytes;
  return RONDE_PLUGIN_INVALID;
}
static void unmark(ronde_plugin_engine* engine, ronde_plugin_mark* made) {
  (void)engine, (void)made;
}
static ronde_plugin_status poll(ronde_plugin_engine* engine, ronde_plugin_work* work, char* text,
                                size_t text_bytes) {
  (void)engine, (void)work, (void)text, (void)text_bytes;
  return RONDE_PLUGIN_FAILED;
}
static ronde_plugin_status wait_on(ronde_plugin_engine* engine, ronde_plugin_work* work,
                                   void* stream, char* text, size_t text_bytes) {
  (void)engine, (void)work, (void)stream, (void)text, (void)text_bytes;
  return RONDE_PLUGIN_FAILED;
}
static void release(ronde_plugin_engine* engine, ronde_plugin_work* work) {
  (void)engine, (void)work;
}
static ronde_plugin_status allocate_host(ronde_plugin_engine* engine, size_t bytes, void** memory,
                                         char* text, size_t text_bytes) {
  (void)engine, (void)bytes, (void)memory, (void)text, (void)text_bytes;
  return RONDE_PLUGIN_FAILED;
}
static void free_host(ronde_plugin_engine* engine, void* memory) { (void)engine, (void)memory; }
static ronde_plugin_status copy(ronde_plugin_engine* engine, const ronde_plugin_copy* what,
                                ronde_plugin_work** work, char* text, size_t text_bytes) {
  (void)engine, (void)what, (void)work, (void)text, (void)text_bytes;
  return RONDE_PLUGIN_FAILED;
}
static ronde_plugin_status allocate(ronde_plugin_engine* engine, size_t bytes, void** memory,
                                    int32_t* device, char* text, size_t text_bytes) {
  (void)engine, (void)bytes, (void)memory, (void)device, (void)text, (void)text_bytes;
  return RONDE_PLUGIN_FAILED;
}
static void free_memory(int32_t device, void* memory) { (void)device, (void)memory; }

static const ronde_plugin table = {RONDE_PLUGIN_VERSION,
                                   "outsider",
                                   sizeof(ronde_plugin),
                                   open_engine,
                                   close_engine,
                                   abort_engine,
                                   classify,
                                   check_stream,
                                   mark,
                                   unmark,
                                   NULL,
                                   poll,
                                   wait_on,
                                   release,
                                   allocate_host,
                                   free_host,
                                   copy,
                                   copy,
                                   allocate,
                                   free_memory};

const ronde_plugin* ronde_plugin_entry(void);
const ronde_plugin* ronde_plugin_entry(void) { return &table; }
