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
   * async_error: every communicator says so. no_memory: allocations on the device fail. */
  void (*set)(const char* what, int32_t value);
  /* Counted since reset: outside (calls without the device being current), allocations, aborted,
   * destroyed, launches. Alive now: streams, events, blocks. */
  int32_t (*get)(const char* what);
  /* Of the calling thread. */
  void (*set_current_device)(int32_t device);
  int32_t (*current_device)(void);
  /* What was put into streams since reset, by all, one line each; returns the length of all. */
  size_t (*trace)(char* text, size_t bytes);
} ronde_fake_controls;

typedef const ronde_fake_controls* (*ronde_fake_controls_entry_function)(void);
#define RONDE_FAKE_CONTROLS_ENTRY "ronde_fake_controls_entry"

#ifdef __cplusplus
}
#endif

#endif /* RONDE_TEST_DEVICE_CUDA_FAKE_CONTROLS_H */
