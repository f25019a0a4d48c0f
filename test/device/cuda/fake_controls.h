/* SPDX-License-Identifier: Apache-2.0 */
/* How a test steers the fakes of CUDA and NCCL, and what it can learn of them. The library with the
 * fakes exports ronde_fake_controls_entry. */
#ifndef RONDE_TEST_DEVICE_CUDA_FAKE_CONTROLS_H
#define RONDE_TEST_DEVICE_CUDA_FAKE_CONTROLS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ronde_fake_controls {
  /* Everything as at the beginning; what is alive stays so. */
  void (*reset)(void);
  /* no_driver, driver_gone, no_nccl, share_gpu: 0 or 1. nccl_version: of every second rank.
   * start_never: communicators never start. steps: how often NCCL says that it is still at it.
   * async_error: every communicator says so. no_memory: allocations on the device fail.
   * abort_delay: milliseconds that it takes to abort a communicator.
   * memory_delay: after so many milliseconds memory of allocate_in is there. */
  void (*set)(const char* what, int32_t value);
  /* Counted since reset: outside (calls without the device being current), strict (calls that fail
   * while another thread captures), allocations, host_allocations, aborted, destroyed, launches.
   * Alive now: streams, events, blocks, host_blocks, results. */
  int32_t (*get)(const char* what);
  /* The device that is current in the calling thread. */
  void (*set_current_device)(int32_t device);
  int32_t (*current_device)(void);
  /* The capture mode of the calling thread, in CUDA's numbers: 0 is global, 2 relaxed. */
  void (*set_capture_mode)(int32_t mode);
  int32_t (*capture_mode)(void);
  /* What was put into streams since reset, by all, one line each; returns the length of all. */
  size_t (*trace)(char* text, size_t bytes);
} ronde_fake_controls;

typedef const ronde_fake_controls* (*ronde_fake_controls_entry_function)(void);
#define RONDE_FAKE_CONTROLS_ENTRY "ronde_fake_controls_entry"

#ifdef __cplusplus
}
#endif

#endif /* RONDE_TEST_DEVICE_CUDA_FAKE_CONTROLS_H */
