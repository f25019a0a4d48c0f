// SPDX-License-Identifier: Apache-2.0
// Where the secret of a job is read, and kept.
#include "runtime/meet/secret.h"

#include <optional>

#include "base/mutex.h"
#include "base/process/environment.h"
#include "base/words/secret_file.h"
#include "runtime/start/variables.h"

namespace ronde::runtime {

using base::Result;

namespace {

constexpr const char* kText = "RONDE_JOB_SECRET";
constexpr const char* kFile = "RONDE_JOB_SECRET_FILE";

Result<MeetingSecret> checked(const std::optional<std::string>& text,
                              const std::optional<std::string>& path) {
  const auto [secret, error] = base::secret_of(text, path);
  if (!error.empty()) return base::Status::error(base::Code::kInvalidArgument, error);
  const auto bytes = std::as_bytes(std::span(secret));
  return MeetingSecret({bytes.begin(), bytes.end()});
}

// The text that was in the environment of this process.
std::optional<std::string> kept_text() {
  static base::Mutex mutex;
  static std::optional<std::string> kept;
  const base::MutexLock lock(mutex);
  if (auto text = base::take_variable(kText)) kept = std::move(text);
  return kept;
}

}  // namespace

Result<MeetingSecret> MeetingSecret::of(std::span<const std::string> environment) {
  return checked(variable(environment, kText), variable(environment, kFile));
}

Result<MeetingSecret> MeetingSecret::of_this_process() {
  const auto environment = base::process_environment();
  const auto path = variable(environment, kFile);
  const bool here = variable(environment, kText).has_value();
  // What was kept counts where nothing is said now.
  return checked(path && !here ? std::nullopt : kept_text(), path);
}

}  // namespace ronde::runtime
