// SPDX-License-Identifier: Apache-2.0
#include "runtime/member/failure_path.h"

#include <utility>

namespace ronde::runtime {

using base::Code;
using base::MutexLock;
using base::Status;

FailurePath::FailurePath(const RankContext& context, Steps steps)
    : context_(context), steps_(std::move(steps)) {}

void FailurePath::fail(const Status& why, std::int32_t culprit) const {
  collectives::FailureRecord record;
  record.culprit = culprit;
  record.reporter = context_.rank;
  record.code = why.code();
  record.text = why.message();
  record.place = why.place();
  context_.board.fail(record);
}

void FailurePath::fail_for_memory() const {
  context_.board.fail({-1, context_.rank, Code::kOutOfMemory, "out of memory", "", true});
}

bool FailurePath::check() {
  if (failed()) return true;
  if (!context_.board.failed()) return false;
  const auto record = context_.board.failure();
  if (!record) return false;
  const Status why = Status::remote(record->code, record->text, record->place, record->culprit);
  if (context_.set == nullptr) context_.log.error(why.message());  // once is enough
  steps_.notify(*record);
  steps_.release(why);
  {
    const MutexLock lock(mutex_);
    why_ = why;
  }
  failed_.store(true, std::memory_order_release);
  steps_.end(why);
  return true;
}

Status FailurePath::why() const {
  const MutexLock lock(mutex_);
  return why_;
}

}  // namespace ronde::runtime
