// SPDX-License-Identifier: Apache-2.0
#include "runtime/member/failure_path.h"

#include <utility>

namespace ronde::runtime {

using base::MutexLock;
using base::Status;

namespace {

collectives::FailureRecord record_of(const Status& why, std::int32_t culprit,
                                     std::int32_t reporter) {
  collectives::FailureRecord record;
  record.culprit = culprit;
  record.reporter = reporter;
  record.code = why.code();
  record.text = why.message();
  record.place = why.place();
  return record;
}

}  // namespace

FailurePath::FailurePath(const RankContext& context, Steps steps)
    : context_(context), steps_(std::move(steps)) {}

void FailurePath::fail(const Status& why, std::int32_t culprit) const {
  context_.board.fail(record_of(why, culprit, context_.rank));
}

void FailurePath::fail_alone(const Status& why) const {
  context_.board.fail_alone(record_of(why, context_.rank, context_.rank));
}

void FailurePath::fail_for_memory() const {
  context_.board.fail({-1, context_.rank, base::Code::kOutOfMemory, "out of memory", "", true});
}

bool FailurePath::check() {
  if (failed()) return true;
  if (!context_.board.failed()) return false;
  const auto record = context_.board.failure();
  if (!record) return false;
  const Status why = Status::remote(record->code, record->text, record->place, record->culprit);
  if (context_.set == nullptr) context_.log.error(why.message());  // once is enough
  steps_.notify(*record);
  end(why);
  return true;
}

void FailurePath::end(const Status& why) {
  steps_.release(why);
  {
    const MutexLock lock(mutex_);
    why_ = why;
  }
  failed_.store(true, std::memory_order_release);
  steps_.end(why);
}

Status FailurePath::why() const {
  const MutexLock lock(mutex_);
  return why_;
}

}  // namespace ronde::runtime
