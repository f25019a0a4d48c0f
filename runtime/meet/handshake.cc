// SPDX-License-Identifier: Apache-2.0
// The bytes of a handshake, and when either end believes the other.
#include "runtime/meet/handshake.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"

namespace ronde::runtime {

namespace {

// Its last two characters are the version of the handshake.
constexpr std::string_view kMagic = "RondeM01";
static_assert(kMagic.size() == kHandshakeMagicBytes);

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

Digest Handshake::proof_of(Role role) const {
  const bool rank = role == Role::kRank;
  const Nonce& of_rank = role_ == Role::kRank ? mine_ : theirs_;
  const Nonce& of_zero = role_ == Role::kRank ? theirs_ : mine_;
  return hmac_sha256(secret_->bytes(),
                     {bytes_of(rank ? "a rank" : "rank 0"), bytes_of(kMagic), of_rank, of_zero});
}

std::vector<std::byte> Handshake::opening() const {
  std::vector<std::byte> bytes(kOpeningBytes);
  const auto magic = bytes_of(kMagic);
  std::copy(mine_.begin(), mine_.end(), std::copy(magic.begin(), magic.end(), bytes.begin()));
  return bytes;
}

std::vector<std::byte> Handshake::begin() const {
  return role_ == Role::kRank ? opening() : std::vector<std::byte>();
}

Handshake::Step Handshake::open(std::span<const std::byte> bytes, std::vector<std::byte>& answer) {
  const auto magic = bytes_of(kMagic);
  if (!std::equal(magic.begin(), magic.end(), bytes.begin())) return Step::kGarbage;
  std::copy(bytes.begin() + kHandshakeMagicBytes, bytes.end(), theirs_.begin());
  opened_ = true;
  if (role_ == Role::kRankZero) {
    answer = opening();
    return Step::kGoOn;
  }
  const Digest proof = proof_of(Role::kRank);
  answer.assign(proof.begin(), proof.end());
  return Step::kGoOn;
}

Handshake::Step Handshake::take(std::span<const std::byte> bytes, std::vector<std::byte>& answer) {
  base::check(bytes.size() == wants(), "Handshake: as many bytes as it wants");
  answer.clear();
  if (!opened_) return open(bytes, answer);
  const Role other = role_ == Role::kRank ? Role::kRankZero : Role::kRank;
  const Digest expected = proof_of(other);
  const bool same = base::same_secret(expected, bytes.first<sizeof(Digest)>());
  if (role_ == Role::kRankZero) {
    const Digest proof = same ? proof_of(Role::kRankZero) : Digest{};
    answer.assign(proof.begin(), proof.end());
  }
  return same ? Step::kProven : Step::kWrongSecret;
}

}  // namespace ronde::runtime
