// SPDX-License-Identifier: Apache-2.0
#include "bindings/trainer/server/keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "bindings/trainer/tensor/errors.h"

namespace ronde::trainer::server {

namespace {

constexpr std::size_t kFewestBytes = 16;
constexpr std::size_t kMostBytes = 4096;
constexpr const char* kAdvice =
    "make one and give it to every task: "
    "export RONDE_JOB_SECRET=$(head -c 32 /dev/urandom | base64)";

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kRound{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void take_block(std::array<std::uint32_t, 8>& state, std::string_view block) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t i = 0; i < 64; ++i) {
    w.at(i / 4) = w.at(i / 4) << 8U | static_cast<std::uint8_t>(block[i]);
  }
  for (std::size_t t = 16; t < 64; ++t) {
    const std::uint32_t x = w.at(t - 15);
    const std::uint32_t y = w.at(t - 2);
    w.at(t) = w.at(t - 16) + (std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3U)) + w.at(t - 7) +
              (std::rotr(y, 17) ^ std::rotr(y, 19) ^ (y >> 10U));
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                ((e & f) ^ (~e & g)) + kRound.at(t) + w.at(t);
    const std::uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<std::uint32_t, 8> added{a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state.size(); ++i) state.at(i) += added.at(i);
}

// What zmq_z85_encode() makes of 32 bytes.
std::string text_of_key(const std::array<std::byte, 32>& key) {
  std::array<char, 41> text{};
  zmq_z85_encode(text.data(), reinterpret_cast<const std::uint8_t*>(key.data()), key.size());
  return text.data();
}

std::string public_of(const std::string& secret) {
  std::array<char, 41> text{};
  if (zmq_curve_public(text.data(), secret.c_str()) != 0) {
    throw TrainerError("this ZeroMQ has no CURVE: install one that was built with it",
                       kExitConfiguration);
  }
  return text.data();
}

bool is_of_this_host(std::string_view address) {
  // Not "127.example.org:1", a name, for which all addresses of the host would be bound.
  const bool numeric = address.find_first_not_of("0123456789.:") == std::string_view::npos;
  return address.starts_with("ipc://") || (numeric && address.starts_with("127.")) ||
         address.starts_with("localhost:") || address.starts_with("[::1]:");
}

std::string read_secret(const std::string& path) {
  const std::string where = "RONDE_JOB_SECRET_FILE=" + path;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) throw TrainerError(where + " cannot be opened", kExitConfiguration);
  struct stat found {};
  std::string text(kMostBytes + 3, '\0');
  const bool safe = ::fstat(file, &found) == 0 && S_ISREG(found.st_mode) &&
                    (found.st_uid == ::geteuid() || found.st_uid == 0) &&
                    (found.st_mode & 077U) == 0;
  const auto size = safe ? ::read(file, text.data(), text.size()) : -1;
  ::close(file);
  if (!safe) {
    throw TrainerError(where +
                           " must be an ordinary file of this user that nobody else may read: "
                           "chmod 600 the file",
                       kExitConfiguration);
  }
  text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  return text;
}

}  // namespace

std::array<std::byte, 32> sha256(std::string_view text) {
  std::array<std::uint32_t, 8> state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::string all(text);
  all.push_back('\x80');
  while (all.size() % 64 != 56) all.push_back('\0');
  const std::uint64_t bits = std::uint64_t{8} * text.size();
  for (int shift = 56; shift >= 0; shift -= 8) all.push_back(static_cast<char>(bits >> shift));
  for (std::size_t at = 0; at < all.size(); at += 64) {
    take_block(state, std::string_view(all).substr(at, 64));
  }
  std::array<std::byte, 32> digest{};
  for (std::size_t i = 0; i < digest.size(); ++i) {
    digest.at(i) = static_cast<std::byte>(state.at(i / 4) >> (24U - 8U * (i % 4)));
  }
  return digest;
}

Keys keys_of(const std::string& secret) {
  Keys keys;
  keys.server_secret = text_of_key(sha256("ronde parameter server, its key\n" + secret));
  keys.client_secret = text_of_key(sha256("ronde parameter server, a client's key\n" + secret));
  keys.server_public = public_of(keys.server_secret);
  keys.client_public = public_of(keys.client_secret);
  return keys;
}

std::optional<Keys> keys_for(const std::vector<std::string>& addresses) {
  const char* const text = std::getenv("RONDE_JOB_SECRET");
  const char* const path = std::getenv("RONDE_JOB_SECRET_FILE");
  if (text != nullptr && path != nullptr) {
    throw TrainerError("RONDE_JOB_SECRET and RONDE_JOB_SECRET_FILE are both set: unset one of them",
                       kExitConfiguration);
  }
  if (text == nullptr && path == nullptr) {
    const auto far = std::ranges::find_if_not(addresses, is_of_this_host);
    if (far == addresses.end()) return {};
    throw TrainerError(
        "the task at " + *far +
            " is on the network, where tasks need a secret to know each other: " + kAdvice,
        kExitConfiguration);
  }
  std::string secret = text != nullptr ? text : read_secret(path);
  const std::size_t end = secret.find_last_not_of(" \t\r\n");
  secret.resize(end == std::string::npos ? 0 : end + 1);
  if (secret.size() < kFewestBytes || secret.size() > kMostBytes) {
    throw TrainerError("the job's secret has " + std::to_string(secret.size()) +
                           " bytes, and must have " + std::to_string(kFewestBytes) + " to " +
                           std::to_string(kMostBytes) + ": " + kAdvice,
                       kExitConfiguration);
  }
  return keys_of(secret);
}

}  // namespace ronde::trainer::server
