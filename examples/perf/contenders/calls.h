// SPDX-License-Identifier: Apache-2.0
// The C ABI as this program uses it: dtypes are chosen at run time, so the requests are filled in
// here instead of by the facade's templates; errors are the facade's exceptions.
#pragma once

#include <memory>
#include <ronde/ronde.hpp>

namespace ronde::perf {

// Calls a function of the C ABI whose last argument receives the error. Throws Error.
template <typename Function, typename... Arguments>
void call(Function* function, Arguments... arguments) {
  ronde_error* error = nullptr;
  const ronde_status status = function(arguments..., &error);
  if (status == RONDE_OK) return;
  if (error == nullptr) throw Error(status, ronde_status_name(status), "", -1);
  const std::unique_ptr<ronde_error, void (*)(ronde_error*)> owner(error, ronde_error_release);
  throw Error(status, ronde_error_message(error), ronde_error_place(error),
              ronde_error_rank(error));
}

}  // namespace ronde::perf
