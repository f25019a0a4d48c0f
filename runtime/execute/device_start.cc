// SPDX-License-Identifier: Apache-2.0
// The two exchanges of the start: which plug-in each rank has found, and whether it opened.
#include "runtime/execute/device_start.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "base/numbers.h"
#include "base/text.h"

namespace ronde::runtime {

using base::Code;
using base::Result;
using base::Status;
using collectives::Device;
using collectives::PluginLibrary;

namespace {

// The first byte of a frame. In the first exchange every rank sends what it has found: an empty
// frame, or one of these with a text.
enum class Found : std::uint8_t { kLoaded = 1, kRefused = 2, kOff = 3 };
// After that the plug-ins exchange data while they open. One that fails early sends its verdict
// while the others still exchange data, so the two kinds must be distinguishable.
enum class FrameKind : std::uint8_t { kData = 1, kVerdict = 2 };

constexpr std::string_view kOff = "RONDE_PLUGIN_PATH=off";

using Bytes = std::vector<std::byte>;

Bytes frame_of(std::uint8_t kind, std::string_view text) {
  Bytes bytes(1 + text.size());
  bytes[0] = std::byte{kind};
  if (!text.empty()) std::memcpy(&bytes[1], text.data(), text.size());
  return bytes;
}
std::uint8_t kind_of(const Bytes& bytes) {
  return bytes.empty() ? std::uint8_t{0} : std::to_integer<std::uint8_t>(bytes.front());
}
std::string text_of(const Bytes& bytes, std::size_t from = 1) {
  if (bytes.size() <= from) return "";
  return {reinterpret_cast<const char*>(bytes.data()) + from, bytes.size() - from};
}

// "toy 1.0", or, where ranks differ, "toy 1.0 on rank 0, toy 1.1 on ranks 1-3".
std::string grouped(const std::vector<std::string>& texts) {
  std::map<std::string, std::vector<std::int32_t>> ranks;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    ranks[texts[rank]].push_back(base::narrow<std::int32_t>(rank));
  }
  if (ranks.size() == 1) return texts.front();
  std::string all;
  for (const auto& [text, who] : ranks) {
    all += (all.empty() ? "" : ", ") + text + " on " + base::ranks_phrase(who);
  }
  return all;
}

StartedDevice without_device(const std::string& why, bool expected) {
  StartedDevice started;
  started.none = why;
  started.line = why + "; tensors in host memory are not affected";
  started.level = expected ? base::LogLevel::kInfo : base::LogLevel::kWarning;
  return started;
}

// Whether one rank's plug-in opened.
struct Verdict {
  bool ok = false;
  bool direct = false;
  std::string text;  // its versions, or why it is not used
};
constexpr std::size_t kVerdictFlags = 3;  // kind, ok, direct

Bytes encode(const Verdict& verdict) {
  // One character for each flag.
  const std::string flags{verdict.ok ? '1' : '0', verdict.direct ? '1' : '0'};
  return frame_of(static_cast<std::uint8_t>(FrameKind::kVerdict), flags + verdict.text);
}
Verdict decode(const Bytes& bytes) {
  if (bytes.size() < kVerdictFlags) return {false, false, "a verdict that cannot be read"};
  return {bytes[1] == std::byte{'1'}, bytes[2] == std::byte{'1'}, text_of(bytes, kVerdictFlags)};
}

// What the plug-ins of the job exchange while they open.
//
// Thread safety: none; one thread uses it.
class OpeningExchange {
 public:
  explicit OpeningExchange(AllgatherParts exchange) : exchange_(std::move(exchange)) {}

  // The plug-in's allgather.
  Status allgather(std::span<const std::byte> mine, std::span<std::byte> all) {
    if (!ended_.ok()) return ended_;
    const Bytes frame = frame_of(static_cast<std::uint8_t>(FrameKind::kData),
                                 {reinterpret_cast<const char*>(mine.data()), mine.size()});
    const auto parts = exchange_(frame);
    if (!parts.ok()) return ended_ = broken_ = parts.status();
    for (std::size_t rank = 0; rank < parts->size(); ++rank) {
      const Bytes& part = (*parts)[rank];
      if (kind_of(part) == static_cast<std::uint8_t>(FrameKind::kVerdict)) {
        return ended_ = Status::error(
                   Code::kUnsupported,
                   "it is not used on rank " + std::to_string(rank) + ": " + decode(part).text);
      }
      if (part.size() != frame.size()) {
        return ended_ = Status::error(
                   Code::kUnsupported,
                   "it exchanges another number of bytes on rank " + std::to_string(rank));
      }
      if (!mine.empty()) {
        std::memcpy(all.data() + rank * mine.size(), part.data() + 1, mine.size());
      }
    }
    return {};
  }

  // Returns every rank's verdict. Ranks that still exchange data receive this rank's verdict
  // meanwhile, which ends their allgather().
  Result<std::vector<Verdict>> conclude(const Verdict& mine) {
    while (broken_.ok()) {
      RONDE_ASSIGN_OR_RETURN(const auto parts, exchange_(encode(mine)));
      std::vector<Verdict> verdicts;
      for (const Bytes& part : parts) {
        if (kind_of(part) == static_cast<std::uint8_t>(FrameKind::kVerdict)) {
          verdicts.push_back(decode(part));
        }
      }
      if (verdicts.size() == parts.size()) return verdicts;
    }
    return broken_;
  }

 private:
  const AllgatherParts exchange_;
  Status ended_;   // the error of every further allgather()
  Status broken_;  // ranks cannot be reached, so no engine can start
};

// What this rank has found, and the frame that tells the others.
struct Search {
  std::optional<PluginLibrary> plugin;
  Bytes finding;
};

Search search(const collectives::PluginPlace& place) {
  if (place.path.empty() && place.required) {
    return {std::nullopt, frame_of(static_cast<std::uint8_t>(Found::kOff), kOff)};
  }
  std::error_code ignored;
  if (!place.required && !std::filesystem::exists(place.path, ignored)) return {};
  auto library = PluginLibrary::load(place.path);
  if (library.ok()) {
    return {*library, frame_of(static_cast<std::uint8_t>(Found::kLoaded), library->name())};
  }
  return {std::nullopt,
          frame_of(static_cast<std::uint8_t>(Found::kRefused), library.status().message())};
}

// Returns nothing when all ranks have loaded the same plug-in, so that they go on to open it.
std::optional<StartedDevice> compare(const Parts& findings) {
  const auto has = [&](Found kind) {
    return std::count_if(findings.begin(), findings.end(), [kind](const Bytes& one) {
      return kind_of(one) == static_cast<std::uint8_t>(kind);
    });
  };
  const auto none =
      std::count_if(findings.begin(), findings.end(), [](const Bytes& one) { return one.empty(); });
  if (std::cmp_equal(none, findings.size())) return StartedDevice{};
  std::vector<std::string> texts;
  for (const Bytes& one : findings) {
    const bool loaded = kind_of(one) == static_cast<std::uint8_t>(Found::kLoaded);
    texts.push_back(one.empty() ? "no device plug-in"
                    : loaded    ? "the plug-in '" + text_of(one) + "'"
                                : text_of(one));
  }
  const std::string found = grouped(texts);
  if (std::cmp_equal(none + has(Found::kOff), findings.size())) {
    StartedDevice off;  // no rank wants a plug-in, so no line is logged
    off.none = found;
    return off;
  }
  if (std::cmp_equal(has(Found::kLoaded), findings.size())) {
    if (found == texts.front()) return std::nullopt;
    return without_device("the ranks have different device plug-ins: " + found, false);
  }
  if (found == texts.front()) return without_device(found, false);
  return without_device("not all ranks have a device plug-in: " + found, false);
}

StartedDevice agree_on(const std::shared_ptr<Device>& device, const std::string& name,
                       const std::vector<Verdict>& verdicts, bool required) {
  const auto is_ok = [](const Verdict& verdict) { return verdict.ok; };
  const bool ok = std::all_of(verdicts.begin(), verdicts.end(), is_ok);
  const bool none = std::none_of(verdicts.begin(), verdicts.end(), is_ok);
  std::vector<std::string> texts;
  std::vector<std::int32_t> apart;
  for (std::size_t rank = 0; rank < verdicts.size(); ++rank) {
    const Verdict& verdict = verdicts[rank];
    texts.push_back(verdict.ok && !ok ? "it could be used" : verdict.text);
    if (!verdict.direct) apart.push_back(base::narrow<std::int32_t>(rank));
  }
  if (!ok) {
    return without_device("the plug-in '" + name + "' is not used: " + grouped(texts),
                          none && !required);
  }
  StartedDevice started;
  started.device = device;
  started.direct = apart.empty();
  started.line = "the plug-in '" + name + "' serves tensors of devices: " + grouped(texts);
  if (!started.direct) {
    started.line += "; they pass through host memory, since the devices of " +
                    base::ranks_phrase(apart) + " cannot be reached by the others";
  }
  return started;
}

}  // namespace

Result<StartedDevice> start_device(DeviceStart start) {
  Search found = search(start.place);
  RONDE_ASSIGN_OR_RETURN(const auto findings, start.exchange(found.finding));
  if (auto without = compare(findings)) return *std::move(without);
  // The plug-in may keep the function, but calls after open() must fail: so it holds a weak
  // pointer.
  const auto exchange = std::make_shared<OpeningExchange>(start.exchange);
  start.host.allgather = [weak = std::weak_ptr<OpeningExchange>(exchange)](auto mine, auto all) {
    const auto open = weak.lock();
    if (open != nullptr) return open->allgather(mine, all);
    return Status::error(Code::kUnsupported, "allgather is for open alone");
  };
  const auto opened = Device::open(*found.plugin, std::move(start.host));
  Verdict mine;
  mine.ok = opened.ok();
  mine.direct = opened.ok() && (*opened)->has_collectives();
  mine.text = opened.ok() ? (*opened)->versions() : opened.status().message();
  RONDE_ASSIGN_OR_RETURN(const auto verdicts, exchange->conclude(mine));
  return agree_on(opened.ok() ? *opened : nullptr, found.plugin->name(), verdicts,
                  start.place.required);
}

}  // namespace ronde::runtime
