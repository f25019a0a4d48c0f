// SPDX-License-Identifier: Apache-2.0
// UCX's own library, loaded when the first end is opened. The plug-in does not link it: what UCX
// does to a process as it is loaded can only be undone by whoever loads it.
#pragma once

#include <ucp/api/ucp.h>

#include <string>

#include "base/status.h"

namespace ronde::collectives::ucx {

// The functions of UCX that the plug-in calls.
struct Library {
  decltype(&::ucp_get_version_string) get_version_string = nullptr;
  decltype(&::ucs_status_string) status_string = nullptr;
  decltype(&::ucp_config_read) config_read = nullptr;
  decltype(&::ucp_config_modify) config_modify = nullptr;
  decltype(&::ucp_config_release) config_release = nullptr;
  decltype(&::ucp_init_version) init_version = nullptr;
  decltype(&::ucp_cleanup) cleanup = nullptr;
  decltype(&::ucp_worker_create) worker_create = nullptr;
  decltype(&::ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&::ucp_worker_get_address) worker_get_address = nullptr;
  decltype(&::ucp_worker_release_address) worker_release_address = nullptr;
  decltype(&::ucp_worker_get_efd) worker_get_efd = nullptr;
  decltype(&::ucp_worker_arm) worker_arm = nullptr;
  decltype(&::ucp_worker_progress) worker_progress = nullptr;
  decltype(&::ucp_worker_set_am_recv_handler) worker_set_am_recv_handler = nullptr;
  decltype(&::ucp_ep_create) ep_create = nullptr;
  decltype(&::ucp_ep_close_nbx) ep_close_nbx = nullptr;
  decltype(&::ucp_ep_flush_nbx) ep_flush_nbx = nullptr;
  decltype(&::ucp_am_send_nbx) am_send_nbx = nullptr;
  decltype(&::ucp_tag_send_nbx) tag_send_nbx = nullptr;
  decltype(&::ucp_tag_recv_nbx) tag_recv_nbx = nullptr;
  decltype(&::ucp_tag_recv_request_test) tag_recv_request_test = nullptr;
  decltype(&::ucp_request_check_status) request_check_status = nullptr;
  decltype(&::ucp_request_cancel) request_cancel = nullptr;
  decltype(&::ucp_request_free) request_free = nullptr;

  [[nodiscard]] std::string text_of(ucs_status_t status) const { return status_string(status); }
};

// Returns UCX's functions; loads them when it is called for the first time in this process, for
// good. The process's signal handlers and the calling thread's stack for them stay as they are, and
// UCX prints nothing, unless the user has asked for it (UCX_HANDLE_ERRORS, UCX_DEBUG_SIGNO,
// UCX_LOG_LEVEL). Where the program has loaded UCX before, all that is its own matter.
//
// Errors: kUnsupported where UCX is not installed, or is too old.
// Thread safety: any thread.
base::Result<const Library*> library();

}  // namespace ronde::collectives::ucx
