// SPDX-License-Identifier: Apache-2.0
// The bytes of a handshake, and when either end believes the other.
#include "base/wire/handshake.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"

namespace ronde::base {

namespace {

// Its last two characters are the version of the handshake.
constexpr std::string_view kMagic = "RondeM02";
static_assert(kMagic.size() == kHandshakeMagicBytes);

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

Digest Handshake::proof_of(Role role) const {
  const bool caller = role == Role::kCaller;
  const Nonce& of_caller = role_ == Role::kCaller ? mine_ : theirs_;
  const Nonce& of_listener = role_ == Role::kCaller ? theirs_ : mine_;
  return hmac_sha256(secret_, {bytes_of(caller ? "a caller" : "a listener"), bytes_of(kMagic),
                               of_caller, of_listener});
}

std::vector<std::byte> Handshake::opening() const {
  std::vector<std::byte> bytes(kOpeningBytes);
  const auto magic = bytes_of(kMagic);
  std::copy(mine_.begin(), mine_.end(), std::copy(magic.begin(), magic.end(), bytes.begin()));
  return bytes;
}

std::vector<std::byte> Handshake::begin() const {
  return role_ == Role::kCaller ? opening() : std::vector<std::byte>();
}

bool Handshake::may_begin(std::span<const std::byte> bytes) {
  constexpr std::size_t kVersionBytes = 2;
  const auto name = bytes_of(kMagic.substr(0, kMagic.size() - kVersionBytes));
  const std::size_t size = std::min(bytes.size(), name.size());
  return std::equal(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(size), bytes.begin());
}

Handshake::Step Handshake::open(std::span<const std::byte> bytes, std::vector<std::byte>& answer) {
  const auto magic = bytes_of(kMagic);
  if (!may_begin(bytes)) return Step::kGarbage;
  if (!std::equal(magic.begin(), magic.end(), bytes.begin())) {
    if (role_ == Role::kListener) answer = opening();  // so that the caller sees another version
    return Step::kVersion;
  }
  std::copy(bytes.begin() + kHandshakeMagicBytes, bytes.end(), theirs_.begin());
  opened_ = true;
  if (role_ == Role::kListener) {
    answer = opening();
    return Step::kGoOn;
  }
  const Digest proof = proof_of(Role::kCaller);
  answer.assign(proof.begin(), proof.end());
  return Step::kGoOn;
}

Handshake::Step Handshake::take(std::span<const std::byte> bytes, std::vector<std::byte>& answer) {
  check(bytes.size() == wants(), "Handshake: as many bytes as it wants");
  answer.clear();
  if (!opened_) return open(bytes, answer);
  const Role other = role_ == Role::kCaller ? Role::kListener : Role::kCaller;
  const Digest expected = proof_of(other);
  const bool same = same_secret(expected, bytes.first<sizeof(Digest)>());
  if (role_ == Role::kListener) {
    const Digest proof = same ? proof_of(Role::kListener) : Digest{};
    answer.assign(proof.begin(), proof.end());
  }
  return same ? Step::kProven : Step::kWrongSecret;
}

}  // namespace ronde::base
