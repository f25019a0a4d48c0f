// SPDX-License-Identifier: Apache-2.0
// The bytes of announcements and decisions: see messages.h. Numbers are little-endian of fixed
// width; a text or a list is its length and its content.
#include "runtime/messages.h"

#include <bit>
#include <cstring>
#include <type_traits>

#include "base/numbers.h"

namespace ronde::runtime {

static_assert(std::endian::native == std::endian::little,
              "control messages are written in the machine's order, which must be little-endian");

namespace {

enum class Kind : std::uint8_t {
  kRequest = 1,
  kClosing = 2,
  kStalled = 3,
  kBind = 16,
  kEvict = 17,
  kError = 18,
  kNotice = 19,
  kBatch = 20,
  kDeparted = 21,
};

class Encoder {
 public:
  explicit Encoder(Kind kind) { number(kind); }

  template <typename T>
    requires(std::is_arithmetic_v<T> || std::is_enum_v<T>)
  void number(T value) {
    append(&value, sizeof(T));
  }
  void text(const std::string& value) {
    number(base::narrow<std::uint32_t>(value.size()));
    append(value.data(), value.size());
  }
  void list(const std::vector<std::int64_t>& values) {
    number(base::narrow<std::uint32_t>(values.size()));
    for (const std::int64_t value : values) number(value);
  }
  void signature(const Signature& value) {
    number(value.operation);
    number(value.dtype);
    number(value.op);
    number(value.root);
    number(value.device);
    number(value.priority);
    number(value.prescale);
    number(value.postscale);
    list(value.shape);
  }
  void tensor(const AgreedTensor& value) {
    signature(value.signature);
    list(value.first_dimensions);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void append(const void* from, std::size_t size) {
    if (size == 0) return;
    bytes_.resize(bytes_.size() + size);
    std::memcpy(bytes_.data() + bytes_.size() - size, from, size);
  }

  std::vector<std::byte> bytes_;
};

// Remembers the first error; from then on every read gives a default. The caller asks at the end.
class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T number() {
    T value{};
    if (!take(sizeof(T))) return value;
    std::memcpy(&value, bytes_.data() + at_ - sizeof(T), sizeof(T));
    return value;
  }
  bool boolean() {
    const auto value = number<std::uint8_t>();
    if (value > 1) fail("a truth value that is neither 0 nor 1");
    return value == 1;
  }
  std::string text() {
    const std::size_t length = number<std::uint32_t>();
    if (!take(length)) return {};
    return {reinterpret_cast<const char*>(bytes_.data() + at_ - length), length};
  }
  std::vector<std::int64_t> list() {
    const std::size_t length = number<std::uint32_t>();
    if (length > (bytes_.size() - at_) / sizeof(std::int64_t)) {
      fail("a list that is longer than the message");
      return {};
    }
    std::vector<std::int64_t> values(length);
    for (std::int64_t& value : values) value = number<std::int64_t>();
    return values;
  }
  Signature signature() {
    Signature value;
    value.operation = number<Operation>();
    if (value.operation > Operation::kBarrier) fail("an unknown operation");
    const auto dtype = base::dtype_from_value(number<std::uint8_t>());
    const auto op = base::reduce_op_from_value(number<std::uint8_t>());
    if (!dtype || !op) fail("an unknown dtype or reduce operation");
    value.dtype = dtype.value_or(base::DType::kF32);
    value.op = op.value_or(base::ReduceOp::kSum);
    value.root = number<std::int32_t>();
    value.device = number<std::int32_t>();
    value.priority = number<std::int32_t>();
    value.prescale = number<double>();
    value.postscale = number<double>();
    value.shape = list();
    const auto elements = base::elements_of(value.shape);
    if (!elements.ok() || !base::bytes_of(*elements, value.dtype).ok()) {
      fail("a shape without a size");
    }
    return value;
  }
  AgreedTensor tensor() {
    AgreedTensor value;
    value.signature = signature();
    value.first_dimensions = list();
    base::Shape whole = value.signature.shape;
    std::int64_t rows = 0;
    for (const std::int64_t first : value.first_dimensions) {
      if (first < 0 || __builtin_add_overflow(rows, first, &rows)) {
        fail("rows without a size");
        return value;
      }
    }
    if (!whole.empty() && !value.first_dimensions.empty()) whole[0] = rows;
    const auto elements = base::elements_of(whole);
    if (!elements.ok() || !base::bytes_of(*elements, value.signature.dtype).ok()) {
      fail("rows without a size");
    }
    return value;
  }

  void fail(const std::string& what) {
    if (error_.empty()) error_ = what + " at byte " + std::to_string(at_);
  }
  [[nodiscard]] bool failed() const { return !error_.empty(); }

  base::Status finish() {
    if (at_ != bytes_.size()) fail("more bytes than the message needs");
    if (!failed()) return {};
    return base::Status::error(base::Code::kInternal, "control message of " +
                                                          std::to_string(bytes_.size()) +
                                                          " bytes is damaged: it has " + error_);
  }

 private:
  bool take(std::size_t count) {
    if (count > bytes_.size() - at_) {
      fail("an early end");
      return false;
    }
    at_ += count;
    return true;
  }

  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::string error_;
};

struct Encode {
  std::vector<std::byte> operator()(const RequestAnnouncement& value) const {
    Encoder out(Kind::kRequest);
    out.text(value.name);
    out.text(value.place);
    out.signature(value.signature);
    return out.take();
  }
  std::vector<std::byte> operator()(const ClosingAnnouncement& value) const {
    Encoder out(Kind::kClosing);
    out.number(static_cast<std::uint8_t>(value.forced));
    return out.take();
  }
  std::vector<std::byte> operator()(const StalledAnnouncement& value) const {
    Encoder out(Kind::kStalled);
    out.text(value.name);
    out.number(value.waited_ns);
    out.number(static_cast<std::uint8_t>(value.failed));
    return out.take();
  }
  std::vector<std::byte> operator()(const BindDecision& value) const {
    Encoder out(Kind::kBind);
    out.number(value.entry);
    out.number(value.generation);
    out.text(value.name);
    out.tensor(value.tensor);
    return out.take();
  }
  std::vector<std::byte> operator()(const EvictDecision& value) const {
    Encoder out(Kind::kEvict);
    out.number(value.entry);
    return out.take();
  }
  std::vector<std::byte> operator()(const ErrorDecision& value) const {
    Encoder out(Kind::kError);
    out.text(value.name);
    out.number(value.code);
    out.text(value.text);
    out.text(value.place);
    out.number(value.rank);
    return out.take();
  }
  std::vector<std::byte> operator()(const NoticeDecision& value) const {
    Encoder out(Kind::kNotice);
    out.text(value.name);
    out.text(value.text);
    return out.take();
  }
  std::vector<std::byte> operator()(const BatchDecision& value) const {
    Encoder out(Kind::kBatch);
    out.number(value.sequence);
    out.number(base::narrow<std::uint32_t>(value.items.size()));
    for (const BatchItem& item : value.items) {
      out.number(item.entry);
      if (item.entry >= 0) continue;
      out.text(item.name);
      out.tensor(item.tensor);
    }
    return out.take();
  }
  std::vector<std::byte> operator()(const DepartedDecision& value) const {
    Encoder out(Kind::kDeparted);
    out.number(value.rank);
    return out.take();
  }
};

base::Code decode_code(Decoder& in) {
  const auto code = in.number<base::Code>();
  if (code <= base::Code::kOk || code > base::Code::kInternal) in.fail("an unknown error code");
  return code;
}

BatchDecision decode_batch(Decoder& in) {
  BatchDecision value;
  value.sequence = in.number<std::uint64_t>();
  const auto count = in.number<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && !in.failed(); ++i) {
    BatchItem item;
    item.entry = in.number<std::int32_t>();
    if (item.entry < 0) {
      item.name = in.text();
      item.tensor = in.tensor();
    }
    value.items.push_back(std::move(item));
  }
  return value;
}

}  // namespace

std::vector<std::byte> encode(const Announcement& announcement) {
  return std::visit(Encode{}, announcement);
}

std::vector<std::byte> encode(const Decision& decision) { return std::visit(Encode{}, decision); }

base::Result<Announcement> decode_announcement(std::span<const std::byte> bytes) {
  Decoder in(bytes);
  Announcement result;
  switch (in.number<Kind>()) {
    case Kind::kRequest: {
      RequestAnnouncement value;
      value.name = in.text();
      value.place = in.text();
      value.signature = in.signature();
      result = std::move(value);
      break;
    }
    case Kind::kClosing:
      result = ClosingAnnouncement{in.boolean()};
      break;
    case Kind::kStalled: {
      StalledAnnouncement value;
      value.name = in.text();
      value.waited_ns = in.number<std::int64_t>();
      value.failed = in.boolean();
      result = std::move(value);
      break;
    }
    default:
      in.fail("an unknown kind of announcement");
  }
  RONDE_RETURN_IF_ERROR(in.finish());
  return result;
}

base::Result<Decision> decode_decision(std::span<const std::byte> bytes) {
  Decoder in(bytes);
  Decision result;
  switch (in.number<Kind>()) {
    case Kind::kBind: {
      BindDecision value;
      value.entry = in.number<std::int32_t>();
      value.generation = in.number<std::uint32_t>();
      value.name = in.text();
      value.tensor = in.tensor();
      result = std::move(value);
      break;
    }
    case Kind::kEvict:
      result = EvictDecision{in.number<std::int32_t>()};
      break;
    case Kind::kError: {
      ErrorDecision value;
      value.name = in.text();
      value.code = decode_code(in);
      value.text = in.text();
      value.place = in.text();
      value.rank = in.number<std::int32_t>();
      result = std::move(value);
      break;
    }
    case Kind::kNotice: {
      NoticeDecision value;
      value.name = in.text();
      value.text = in.text();
      result = std::move(value);
      break;
    }
    case Kind::kBatch:
      result = decode_batch(in);
      break;
    case Kind::kDeparted:
      result = DepartedDecision{in.number<std::int32_t>()};
      break;
    default:
      in.fail("an unknown kind of decision");
  }
  RONDE_RETURN_IF_ERROR(in.finish());
  return result;
}

}  // namespace ronde::runtime
