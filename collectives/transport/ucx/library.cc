// SPDX-License-Identifier: Apache-2.0
// Loads UCX, and takes back what its libraries do to the process as they are loaded: handlers for
// SIGHUP and for faults, a stack for them, and log lines on the program's standard output.
#include "collectives/transport/ucx/library.h"

#include <dlfcn.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdlib>

#include "base/numbers.h"

namespace ronde::collectives::ucx {

namespace {

using base::Code;
using base::Result;
using base::Status;

// The version that brought the calls used here, with endpoints that report the death of a peer on
// every transport of one machine.
constexpr const char* kNeeded = "install UCX 1.12 or newer (Debian: libucx0)";

// What loading a library may change in this process and this thread.
class SignalSettings {
 public:
  SignalSettings() {
    for (std::size_t number = 1; number < handlers_.size(); ++number) {
      ::sigaction(base::narrow<int>(number), nullptr, &handlers_[number]);
    }
    ::sigaltstack(nullptr, &stack_);
  }

  // Calls release(number) for each signal that has another handler now, and puts back the handler
  // and the stack from before.
  template <typename Release>
  void restore(Release&& release) const {
    for (std::size_t number = 1; number < handlers_.size(); ++number) {
      struct sigaction now {};
      if (::sigaction(base::narrow<int>(number), nullptr, &now) != 0) continue;
      if (same(now, handlers_[number])) continue;
      release(base::narrow<int>(number));
      ::sigaction(base::narrow<int>(number), &handlers_[number], nullptr);
    }
    stack_t now{};
    ::sigaltstack(nullptr, &now);
    if (now.ss_sp != stack_.ss_sp) ::sigaltstack(&stack_, nullptr);
  }

 private:
  static bool same(const struct sigaction& a, const struct sigaction& b) {
    // Both members share their memory; the flags say which is used.
    return a.sa_sigaction == b.sa_sigaction && a.sa_flags == b.sa_flags;
  }

  std::array<struct sigaction, NSIG> handlers_{};
  stack_t stack_{};
};

bool user_has_set(const char* variable) { return std::getenv(variable) != nullptr; }

template <typename Function>
bool find(void* handle, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(handle, name));
  return function != nullptr;
}

// Returns the name of a function that this UCX lacks, or nullptr.
const char* find_all(void* handle, Library& found) {
  const char* missing = nullptr;
  const auto look = [&](const char* name, auto& function) {
    if (!find(handle, name, function)) missing = name;
  };
  look("ucp_get_version_string", found.get_version_string);
  look("ucs_status_string", found.status_string);
  look("ucp_config_read", found.config_read);
  look("ucp_config_modify", found.config_modify);
  look("ucp_config_release", found.config_release);
  look("ucp_init_version", found.init_version);
  look("ucp_cleanup", found.cleanup);
  look("ucp_worker_create", found.worker_create);
  look("ucp_worker_destroy", found.worker_destroy);
  look("ucp_worker_get_address", found.worker_get_address);
  look("ucp_worker_release_address", found.worker_release_address);
  look("ucp_worker_get_efd", found.worker_get_efd);
  look("ucp_worker_arm", found.worker_arm);
  look("ucp_worker_progress", found.worker_progress);
  look("ucp_worker_set_am_recv_handler", found.worker_set_am_recv_handler);
  look("ucp_ep_create", found.ep_create);
  look("ucp_ep_close_nbx", found.ep_close_nbx);
  look("ucp_ep_flush_nbx", found.ep_flush_nbx);
  look("ucp_am_send_nbx", found.am_send_nbx);
  look("ucp_tag_send_nbx", found.tag_send_nbx);
  look("ucp_tag_recv_nbx", found.tag_recv_nbx);
  look("ucp_tag_recv_request_test", found.tag_recv_request_test);
  look("ucp_request_check_status", found.request_check_status);
  look("ucp_request_cancel", found.request_cancel);
  look("ucp_request_free", found.request_free);
  return missing;
}

// UCX prints its warnings and errors on standard output. An end reports what fails by itself.
void silence(void* handle) {
  decltype(&::ucs_global_opts_set_value) set = nullptr;
  if (user_has_set("UCX_LOG_LEVEL") || !find(handle, "ucs_global_opts_set_value", set)) return;
  set("LOG_LEVEL", "fatal");
}

void forget_handlers(void* handle, const SignalSettings& before) {
  for (const char* asked : {"UCX_HANDLE_ERRORS", "UCX_ERROR_SIGNALS", "UCX_DEBUG_SIGNO"}) {
    if (user_has_set(asked)) return;
  }
  // UCX puts back at exit what it found, so it must forget these signals.
  decltype(&::ucs_debug_disable_signal) disable = nullptr;
  find(handle, "ucs_debug_disable_signal", disable);
  before.restore([&](int number) {
    if (disable != nullptr) disable(number);
  });
}

Result<Library> load() {
  constexpr const char* kName = "libucp.so.0";
  const SignalSettings before;
  // The program's own UCX, or that of its MPI.
  void* handle = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  const bool was_there = handle != nullptr;
  if (!was_there) handle = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = ::dlerror();
    return Status::error(Code::kUnsupported, std::string("UCX cannot be loaded (") +
                                                 (why == nullptr ? kName : why) + "): " + kNeeded);
  }
  if (!was_there) {
    forget_handlers(handle, before);
    silence(handle);
  }
  Library found;
  if (const char* missing = find_all(handle, found); missing != nullptr) {
    return Status::error(Code::kUnsupported,
                         std::string("this UCX lacks ") + missing + ": " + kNeeded);
  }
  return found;
}

}  // namespace

Result<const Library*> library() {
  // Never destroyed: an engine that the program leaves open is closed after this plug-in's objects.
  static const auto* const kLoaded = new Result<Library>(load());
  RONDE_RETURN_IF_ERROR(kLoaded->status());
  return &**kLoaded;
}

}  // namespace ronde::collectives::ucx
