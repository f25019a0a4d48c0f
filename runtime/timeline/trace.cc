// SPDX-License-Identifier: Apache-2.0
#include "runtime/timeline/trace.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

namespace ronde::runtime {

using base::Instant;
using base::Nanoseconds;

namespace {

// The rows of a rank; those of tensors and of marks follow.
constexpr std::int64_t kRowOfBatches = 0;
constexpr std::int64_t kRowOfPhases = 1;
constexpr std::int64_t kFirstFreeRow = 1 + std::int64_t{collectives::kBatchPhases};
constexpr std::array<std::string_view, collectives::kBatchPhases> kPhaseNames{
    "copy-in", "reduce", "copy-out", "between hosts"};

// A program that invents a name for each operation would need a row for each.
constexpr std::size_t kMostRows = 4096;
constexpr std::string_view kRowOfTheRest = "other tensors";

void append_number(std::string& text, std::int64_t number) { text += std::to_string(number); }

// In microseconds, as the format has them.
void append_time(std::string& text, Nanoseconds time) {
  const bool negative = time.count() < 0;
  const std::int64_t whole = negative ? -time.count() : time.count();
  if (negative) text += '-';
  append_number(text, whole / 1000);
  const std::int64_t rest = whole % 1000;
  const char digits[] = {'.', static_cast<char>('0' + rest / 100),
                         static_cast<char>('0' + rest / 10 % 10),
                         static_cast<char>('0' + rest % 10)};
  text.append(digits, sizeof(digits));
}

// "ALLREDUCE", as Horovod's timeline calls it.
std::string upper_case(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char letter) {
    return static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  });
  return upper;
}

std::string waiting_name(const TracedTensor& tensor, std::int32_t rank) {
  if (tensor.waited_for == kWaitedForOtherHosts) return "wait for other hosts";
  if (tensor.waited_for == kWaitedForUnknown) return "wait for others";
  if (tensor.waited_for == rank) return "negotiate";  // this rank was the last
  return "wait for rank " + std::to_string(tensor.waited_for);
}

}  // namespace

struct TraceLines::Span {
  std::string_view name;
  std::string_view category;
  std::int64_t row = 0;
  Instant begin{};
  Instant end{};
  std::string arguments{};  // of a JSON object, without its braces
};

std::string json_text(std::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void TraceLines::append(std::string& text, const Traced& traced) {
  std::visit([&](const auto& one) { add(text, one); }, traced);
}

void TraceLines::append_about(std::string& text, std::string_view kind,
                              std::string_view arguments) const {
  text += R"({"name":")";
  text += kind;
  text += R"(","ph":"M","pid":)";
  append_number(text, rank_);
  text += R"(,"tid":0,"args":{)";
  text += arguments;
  text += "}}\n";
}

// `name` is quoted already. The caller appends the rest, and the brace at the end.
void TraceLines::begin_event(std::string& text, char kind, std::int64_t row, std::string_view name,
                             Instant at) const {
  text += R"({"name":)";
  text += name;
  text += R"(,"ph":")";
  text += kind;
  text += R"(","pid":)";
  append_number(text, rank_);
  text += R"(,"tid":)";
  append_number(text, row);
  text += R"(,"ts":)";
  append_time(text, at + offset_);
}

void TraceLines::add_span(std::string& text, const Span& span) const {
  begin_event(text, 'X', span.row, '"' + std::string(span.name) + '"', span.begin);
  text += R"(,"dur":)";
  append_time(text, std::max(span.end - span.begin, Nanoseconds(0)));
  text += R"(,"cat":")";
  text += span.category;
  text += R"(","args":{)";
  text += span.arguments;
  text += "}}\n";
}

void TraceLines::name_row(std::string& text, std::int64_t row, std::string_view name) {
  text += R"({"name":"thread_name","ph":"M","pid":)";
  append_number(text, rank_);
  text += R"(,"tid":)";
  append_number(text, row);
  text += R"(,"args":{"name":)" + json_text(name) + "}}\n";
}

std::int64_t TraceLines::row_of(std::string& text, const std::string& name) {
  const auto found = rows_.find(name);
  if (found != rows_.end()) return found->second;
  if (rows_.size() >= kMostRows && name != kRowOfTheRest) {
    return row_of(text, std::string(kRowOfTheRest));
  }
  const std::int64_t row = kFirstFreeRow + static_cast<std::int64_t>(rows_.size());
  rows_.emplace(name, row);
  name_row(text, row, name);
  return row;
}

void TraceLines::add(std::string& text, const TracedTensor& tensor) {
  const std::int64_t row = row_of(text, std::string(name_of(tensor.operation)) + "." + tensor.name);
  const std::string category = upper_case(name_of(tensor.operation));
  std::string of_batch = "\"batch\":" + std::to_string(tensor.batch);
  if (!tensor.ok) of_batch += ",\"failed\":true";
  add_span(text, {.name = waiting_name(tensor, rank_),
                  .category = "NEGOTIATE_" + category,
                  .row = row,
                  .begin = tensor.submitted,
                  .end = tensor.decided});
  add_span(text, {.name = "queue",
                  .category = "QUEUE",
                  .row = row,
                  .begin = tensor.decided,
                  .end = tensor.began});
  add_span(text, {.name = name_of(tensor.operation),
                  .category = category,
                  .row = row,
                  .begin = tensor.began,
                  .end = tensor.ended,
                  .arguments = of_batch + ",\"bytes\":" + std::to_string(tensor.bytes)});
}

void TraceLines::add(std::string& text, const TracedBatch& batch) {
  if (rows_.emplace("", kRowOfBatches).second) {
    name_row(text, kRowOfBatches, "batches");
    for (std::size_t i = 0; i < kPhaseNames.size(); ++i) {
      name_row(text, kRowOfPhases + static_cast<std::int64_t>(i), kPhaseNames[i]);
    }
  }
  const std::string name = "batch " + std::to_string(batch.sequence);
  add_span(text, {.name = name,
                  .category = "BATCH",
                  .row = kRowOfBatches,
                  .begin = batch.began,
                  .end = batch.ended,
                  .arguments = "\"tensors\":" + std::to_string(batch.tensors)});
  for (std::size_t i = 0; i < kPhaseNames.size(); ++i) {
    const collectives::PhaseTime& phase = batch.phases[i];
    if (phase.first == base::kNever) continue;
    std::string busy = "\"batch\":" + std::to_string(batch.sequence) + ",\"busy_us\":";
    append_time(busy, phase.busy);
    add_span(text, {.name = kPhaseNames[i],
                    .category = "PHASE",
                    .row = kRowOfPhases + static_cast<std::int64_t>(i),
                    .begin = phase.first,
                    .end = phase.last,
                    .arguments = std::move(busy)});
  }
  if (!cycles_) return;
  begin_event(text, 'i', kRowOfBatches, "\"CYCLE_START\"", batch.began);
  text += ",\"s\":\"t\"}\n";
}

void TraceLines::add(std::string& text, const TracedMark& mark) {
  constexpr std::string_view kKinds = "iBE";
  const char kind = kKinds[static_cast<std::size_t>(mark.kind)];
  const std::int64_t row = row_of(text, "marks of thread " + std::to_string(mark.thread));
  begin_event(text, kind, row, json_text(mark.name), mark.at);
  text += mark.kind == MarkKind::kInstant ? ",\"s\":\"t\"}\n" : ",\"cat\":\"MARK\"}\n";
}

void TraceLines::add(std::string& text, const TracedLoss& loss) {
  begin_event(text, 'i', kRowOfBatches, "\"events lost\"", loss.at);
  text += ",\"s\":\"p\",\"args\":{\"events\":" + std::to_string(loss.events) + "}}\n";
}

}  // namespace ronde::runtime
