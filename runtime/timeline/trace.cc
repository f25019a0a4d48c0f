// SPDX-License-Identifier: Apache-2.0
#include "runtime/timeline/trace.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

namespace ronde::runtime {

using base::Instant;
using base::Nanoseconds;

namespace {

// The rows of a rank; those of tensors and of marks follow behind kFirstFreeRow.
constexpr std::int64_t kRowOfBatches = 0;
constexpr std::int64_t kRowOfPhases = 1;
constexpr std::int64_t kFirstFreeRow = 1 + std::int64_t{collectives::kBatchPhases};
constexpr std::array<std::string_view, collectives::kBatchPhases> kPhaseNames{
    "copy-in", "reduce", "copy-out", "between hosts"};

// A program that invents a name for each operation would need a row for each.
constexpr std::size_t kMostRows = 4096;
constexpr std::string_view kRowOfTheRest = "other tensors";

void append_number(std::string& text, std::int64_t number) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number);
  text.append(digits.data(), end.ptr);
}

// In microseconds, as the format has them.
void append_time(std::string& text, Nanoseconds time) {
  const bool negative = time.count() < 0;
  const std::int64_t whole = negative ? -time.count() : time.count();
  if (negative) text += '-';
  append_number(text, whole / 1000);
  const std::int64_t rest = whole % 1000;
  const std::array<char, 4> digits{'.', static_cast<char>('0' + rest / 100),
                                   static_cast<char>('0' + rest / 10 % 10),
                                   static_cast<char>('0' + rest % 10)};
  text.append(digits.data(), digits.size());
}

// "ALLREDUCE", as Horovod's timeline calls it.
std::string upper_case(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char letter) {
    return static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  });
  return upper;
}

// The same for a name whenever it is written: another engine of this process may write the same
// file, and so does this one when it is started again. FNV-1a; viewers read 32 bits.
std::int64_t number_of_row(std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325;
  for (const char letter : name) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3;
  }
  constexpr std::uint64_t kMostBits = 0x7FFFFFFF;
  return std::max(kFirstFreeRow, static_cast<std::int64_t>((hash ^ (hash >> 32)) & kMostBits));
}

void append_waiting(std::string& text, const TracedTensor& tensor, std::int32_t rank) {
  if (tensor.waited_for == kWaitedForOtherHosts) {
    text += "wait for other hosts";
  } else if (tensor.waited_for == kWaitedForUnknown) {
    text += "wait for others";
  } else if (tensor.waited_for == rank) {
    text += "negotiate";  // this rank was the last
  } else {
    text += "wait for rank ";
    append_number(text, tensor.waited_for);
  }
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

std::string arguments_of(const ClockOffset& clocks) {
  return "\"offset_ns\":" + std::to_string(clocks.offset.count()) +
         ",\"error_ns\":" + std::to_string(clocks.error.count());
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

// Rows are shown in the order in which they are named.
void TraceLines::name_row(std::string& text, std::int64_t row, std::string_view name) {
  const auto about = [&](std::string_view kind, const std::string& argument) {
    text += R"({"name":")";
    text += kind;
    text += R"(","ph":"M","pid":)";
    append_number(text, rank_);
    text += R"(,"tid":)";
    append_number(text, row);
    text += R"(,"args":{)" + argument + "}}\n";
  };
  about("thread_name", "\"name\":" + json_text(name));
  about("thread_sort_index", "\"sort_index\":" + std::to_string(rows_.size()));
}

std::int64_t TraceLines::row_of(std::string& text, const std::string& name) {
  const auto found = rows_.find(name);
  if (found != rows_.end()) return found->second;
  if (rows_.size() >= kMostRows && name != kRowOfTheRest) {
    return row_of(text, std::string(kRowOfTheRest));
  }
  const std::int64_t row = number_of_row(name);
  rows_.emplace(name, row);
  name_row(text, row, name);
  return row;
}

// There are hundreds of these in each step of a training: what is the same in every step is made
// once.
const TraceLines::TensorRow& TraceLines::tensor_row(std::string& text, const TracedTensor& tensor) {
  auto& rows = tensor_rows_[static_cast<std::size_t>(tensor.operation)];
  const auto found = rows.find(tensor.name);
  if (found != rows.end()) return found->second;
  const std::string operation(name_of(tensor.operation));
  const std::int64_t row = row_of(text, operation + "." + tensor.name);
  const std::string begin = R"({"ph":"X","pid":)" + std::to_string(rank_) + R"(,"tid":)" +
                            std::to_string(row) + R"(,"cat":")";
  const std::string category = upper_case(operation);
  TensorRow made{begin + "NEGOTIATE_" + category + R"(","name":")",
                 begin + R"(QUEUE","name":"queue)",
                 begin + category + R"(","name":")" + operation + R"(","args":{"batch":)"};
  if (rows.size() >= kMostRows) return unnamed_ = std::move(made);
  return rows.emplace(tensor.name, std::move(made)).first->second;
}

void TraceLines::append_span(std::string& text, Instant begin, Instant end) const {
  text += R"(,"ts":)";
  append_time(text, begin + offset_);
  text += R"(,"dur":)";
  append_time(text, std::max(end - begin, Nanoseconds(0)));
  text += "}\n";
}

void TraceLines::add(std::string& text, const TracedTensor& tensor) {
  const TensorRow& row = tensor_row(text, tensor);
  text += row.waits;
  append_waiting(text, tensor, rank_);
  text += '"';
  append_span(text, tensor.submitted, tensor.decided);
  text += row.queues;
  text += '"';
  append_span(text, tensor.decided, tensor.began);
  text += row.moves;
  append_number(text, static_cast<std::int64_t>(tensor.batch));
  text += R"(,"bytes":)";
  append_number(text, tensor.bytes);
  text += tensor.ok ? "}" : R"(,"failed":true})";
  append_span(text, tensor.began, tensor.ended);
}

void TraceLines::add(std::string& text, const TracedBatch& batch) {
  if (rows_.emplace("", kRowOfBatches).second) {
    name_row(text, kRowOfBatches, "batches");
    for (std::size_t i = 0; i < kPhaseNames.size(); ++i) {
      name_row(text, kRowOfPhases + static_cast<std::int64_t>(i), kPhaseNames[i]);
    }
  }
  const std::string name = "batch " + std::to_string(batch.sequence);
  add_span(text,
           {.name = name,
            .category = "BATCH",
            .row = batch.set.empty() ? kRowOfBatches : row_of(text, "batches of " + batch.set),
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

// Two events with one number; viewers draw those of a name below each other.
void TraceLines::add(std::string& text, const TracedMessage& message) {
  std::string name = message.sends ? "send to " : "recv from ";
  name += message.peer < 0 ? "any rank" : "rank " + std::to_string(message.peer);
  if (!message.set.empty()) name += " in " + message.set;
  ++messages_;
  for (const bool ends : {false, true}) {
    begin_event(text, ends ? 'e' : 'b', kRowOfBatches, json_text(name),
                ends ? message.ended : message.began);
    text += R"(,"cat":"MESSAGE","id":")" + std::to_string(rank_) + '.';
    append_number(text, messages_);
    text += R"(","args":{"tag":)";
    append_number(text, message.tag);
    text += R"(,"bytes":)";
    append_number(text, message.bytes);
    text += message.ok ? "}}\n" : ",\"failed\":true}}\n";
  }
}

void TraceLines::add(std::string& text, const TracedClocks& compared) {
  offset_ = compared.clocks.offset;
  begin_event(text, 'i', kRowOfBatches, "\"clocks compared\"", compared.at);
  text += ",\"s\":\"p\",\"args\":{" + arguments_of(compared.clocks) + "}}\n";
}

void TraceLines::add(std::string& text, const TracedLoss& loss) {
  begin_event(text, 'i', kRowOfBatches, "\"events lost\"", loss.at);
  text += ",\"s\":\"p\",\"args\":{\"events\":" + std::to_string(loss.events) + "}}\n";
}

}  // namespace ronde::runtime
