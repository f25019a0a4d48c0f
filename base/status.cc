// SPDX-License-Identifier: Apache-2.0
// The shared state of a Status, and how its texts are put together.
#include "base/status.h"

#include <cstddef>
#include <cstring>
#include <system_error>

#include "base/text.h"

namespace ronde::base {

struct Status::State {
  Code code;
  std::string message;
  std::string place;
  std::optional<std::int32_t> rank;
  Status cause;
};

namespace {

// Returns the path below the source root, which a reader of a log can find again.
std::string short_place(const std::source_location& where) {
  std::string file = where.file_name();
  static constexpr const char* kRoots[] = {"base/",     "fusion/",   "collectives/", "runtime/",
                                           "bindings/", "launcher/", "examples/",    "test/"};
  std::size_t best = std::string::npos;
  for (const char* root : kRoots) {
    const std::size_t at = file.rfind(std::string("/") + root);
    if (at != std::string::npos && (best == std::string::npos || at < best)) best = at;
  }
  if (best != std::string::npos) file = file.substr(best + 1);
  return file + ":" + std::to_string(where.line());
}

}  // namespace

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kMismatch:
      return "mismatch";
    case Code::kDuplicateName:
      return "duplicate name";
    case Code::kClosed:
      return "closed";
    case Code::kPeerFailed:
      return "peer failed";
    case Code::kDeadline:
      return "deadline";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kOutOfMemory:
      return "out of memory";
    case Code::kSystem:
      return "system error";
    case Code::kTransport:
      return "transport error";
    case Code::kInternal:
      return "internal error";
  }
  return "unknown code";
}

Status Status::error(Code code, const std::string& message, std::source_location where) {
  return error(code, message, Status(), where);
}

Status Status::error(Code code, const std::string& message, Status cause,
                     std::source_location where) {
  check(code != Code::kOk, "an error needs a code other than ok");
  Status status;
  auto rank = cause.rank();
  status.state_ = std::make_shared<const State>(
      State{code, printable(message), short_place(where), rank, std::move(cause)});
  return status;
}

Status Status::remote(Code code, const std::string& message, const std::string& place,
                      std::int32_t rank) {
  Status status;
  status.state_ = std::make_shared<const State>(
      State{code, printable(message), printable(place),
            rank >= 0 ? std::optional<std::int32_t>(rank) : std::nullopt, Status()});
  return status;
}

Status Status::system(const std::string& action, int error_number, std::source_location where) {
  const Code code = error_number == ENOMEM ? Code::kOutOfMemory : Code::kSystem;
  return error(code, action + ": " + std::generic_category().message(error_number), where);
}

Code Status::code() const { return ok() ? Code::kOk : state_->code; }

std::string Status::message() const {
  if (ok()) return "ok";
  if (state_->cause.ok()) return state_->message;
  return state_->message + ": " + state_->cause.message();
}

std::string Status::place() const {
  if (ok()) return "";
  return state_->cause.ok() ? state_->place : state_->cause.place();
}

std::optional<std::int32_t> Status::rank() const { return ok() ? std::nullopt : state_->rank; }

Status Status::with_rank(std::int32_t rank) const {
  if (ok()) return *this;
  Status status;
  State state = *state_;
  state.rank = rank;
  status.state_ = std::make_shared<const State>(std::move(state));
  return status;
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return message() + " [" + code_name(code()) + ", " + place() + "]";
}

}  // namespace ronde::base
