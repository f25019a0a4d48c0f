// SPDX-License-Identifier: Apache-2.0
// The handshake: before anything else is read from a connection, each end proves to the other that
// it knows the job's secret, without sending it. Pure: bytes in, bytes out.
//
//   caller                            listener
//   magic, nonce              ->
//                             <-      magic, nonce
//   proof of the caller       ->
//                             <-      proof of the listener, or zeros: the caller has another
//                             secret
//
// A proof is HMAC-SHA-256 with the secret as the key over a word for the role, the magic and both
// nonces, 32 random bytes each: so no proof of one connection, or of the other role, fits another.
// The caller proves first, so that the listener gives nothing away to strangers. Ranks of one host
// that were given no secret do the same with an empty one: there the socket's credentials keep
// others out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/process/secrets.h"
#include "base/status.h"
#include "base/wire/sha256.h"

namespace ronde::base {

using Nonce = std::array<std::byte, 32>;

// From the kernel's random numbers.
inline Result<Nonce> make_nonce() { return random_bytes<sizeof(Nonce)>(); }

inline constexpr std::size_t kHandshakeMagicBytes = 8;
inline constexpr std::size_t kOpeningBytes = kHandshakeMagicBytes + sizeof(Nonce);

// Either end of a handshake. The caller reads exactly wants() bytes, hands them to take(), and
// sends what that answers. `secret` must outlive it.
//
// Thread safety: none; one thread uses it.
class Handshake {
 public:
  enum class Step : std::uint8_t {
    kGoOn,
    kProven,       // the other end knows the secret; what follows are frames
    kGarbage,      // what came is not Ronde's
    kVersion,      // it is another version's
    kWrongSecret,  // the other end has another secret
  };

  enum class Role : std::uint8_t { kCaller, kListener };

  Handshake(Role role, std::span<const std::byte> secret, const Nonce& nonce)
      : role_(role), secret_(secret), mine_(nonce) {}

  // What to send before anything is read: the opening of a caller; a listener sends nothing.
  [[nodiscard]] std::vector<std::byte> begin() const;
  // Whether bytes that have arrived can become an opening, of any version.
  [[nodiscard]] static bool may_begin(std::span<const std::byte> bytes);
  [[nodiscard]] bool opened() const { return opened_; }
  // How many bytes take() needs next.
  [[nodiscard]] std::size_t wants() const { return opened_ ? sizeof(Digest) : kOpeningBytes; }
  // `answer`: what to send, after kWrongSecret too; empty: nothing.
  Step take(std::span<const std::byte> bytes, std::vector<std::byte>& answer);

 private:
  Step open(std::span<const std::byte> bytes, std::vector<std::byte>& answer);
  [[nodiscard]] Digest proof_of(Role role) const;
  [[nodiscard]] std::vector<std::byte> opening() const;

  Role role_;
  std::span<const std::byte> secret_;
  Nonce mine_;
  Nonce theirs_{};
  bool opened_ = false;
};

}  // namespace ronde::base
