/* SPDX-License-Identifier: Apache-2.0 */
/* What the conformance suite needs of a device beside its plug-in: memory, streams and events as a
 * program has them. The plug-in under test, or a library of its own, exports
 * ronde_device_kit_entry. */
#ifndef RONDE_TEST_DEVICE_KIT_H
#define RONDE_TEST_DEVICE_KIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ronde_device_kit {
  size_t struct_size;
  /* Device memory; NULL when there is none left. */
  void* (*allocate)(size_t bytes);
  void* (*allocate_managed)(size_t bytes);
  void (*free)(void* memory);
  /* Between host and device, behind what is in the stream (NULL: the default one); they return when
   * it is over. */
  void (*write)(void* device, const void* host, size_t bytes, void* stream);
  void (*read)(void* host, const void* device, size_t bytes, void* stream);
  void* (*make_stream)(void);
  void (*free_stream)(void* stream);
  /* Puts work into the stream that takes so long, or a copy from device to device. */
  void (*delay)(void* stream, int32_t milliseconds);
  void (*copy)(void* stream, void* to, const void* from, size_t bytes);
  void (*synchronize)(void* stream);
  /* Recorded in a stream, and later in the same or another one again. */
  void* (*make_event)(void* stream);
  void (*record_event)(void* event, void* stream);
  void (*free_event)(void* event);
  /* From begin to end the stream records instead of running. */
  void (*begin_capture)(void* stream);
  void (*end_capture)(void* stream);
} ronde_device_kit;

typedef const ronde_device_kit* (*ronde_device_kit_entry_function)(void);
#define RONDE_DEVICE_KIT_ENTRY "ronde_device_kit_entry"

#ifdef __cplusplus
}
#endif

#endif /* RONDE_TEST_DEVICE_KIT_H */
