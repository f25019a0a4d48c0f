// SPDX-License-Identifier: Apache-2.0
// The C table (plugin.h) of a transport that is written in C++: its functions are those of a class
// of ends, and no exception leaves them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/numbers.h"
#include "base/status.h"
#include "collectives/transport/plugin.h"
#include "collectives/transport/plugin_status.h"
#include "collectives/transport/transport.h"

namespace ronde::collectives {

// A class of ends has send(), receive(), test() and outstanding(), which promise what those of
// Transport do, and of these what it needs:
//   progress(), arm()     if it has a descriptor to sleep on
//   address(), connect()  if something else introduces the ranks
//   usable()              whose error is the answer of all functions that can fail
//   abandon(), close()    where close takes the end, as a std::unique_ptr, and the patience

// Calls call(end), which returns a status of the table, if the end may be used.
template <typename End, typename Call>
[[gnu::always_inline]] inline ronde_transport_status on_end(ronde_transport_end* end,
                                                            ronde_transport_error* error,
                                                            Call&& call) noexcept {
  return guarded(error, [&] {
    End& mine = *reinterpret_cast<End*>(end);
    if constexpr (requires { mine.usable(); }) {
      if (const base::Status may = mine.usable(); !may.ok()) return answer_of(may, error);
    }
    return call(mine);
  });
}

// The functions of a table that carry messages.
template <typename End>
constexpr void add_messages(ronde_transport& table) {
  using Handle = ronde_transport_end*;
  using Error = ronde_transport_error*;
  table.send = [](Handle handle, std::int32_t peer, std::int32_t tag, const void* data,
                  std::size_t length, std::uint64_t* request, Error error) {
    return on_end<End>(handle, error, [&](End& end) {
      const auto started = end.send(peer, tag, {static_cast<const std::byte*>(data), length});
      if (!started.ok()) return answer_of(started.status(), error);
      *request = *started;
      return RONDE_TRANSPORT_OK;
    });
  };
  table.receive = [](Handle handle, std::int32_t peer, std::int32_t tag, void* data,
                     std::size_t length, std::uint64_t* request, Error error) {
    return on_end<End>(handle, error, [&](End& end) {
      const auto started = end.receive(peer, tag, {static_cast<std::byte*>(data), length});
      if (!started.ok()) return answer_of(started.status(), error);
      *request = *started;
      return RONDE_TRANSPORT_OK;
    });
  };
  table.test = [](Handle handle, std::uint64_t request, Error error) {
    return on_end<End>(handle, error,
                       [&](End& end) { return answer_of(end.test(request), error); });
  };
  table.outstanding = [](Handle handle) -> std::int32_t {
    return reinterpret_cast<End*>(handle)->outstanding();
  };
  if constexpr (requires(End& end) { end.arm(); }) {
    table.progress = [](Handle handle, Error error) {
      return on_end<End>(handle, error, [](End& end) {
        return end.progress() ? RONDE_TRANSPORT_OK : RONDE_TRANSPORT_PENDING;
      });
    };
    table.arm = [](Handle handle, Error error) {
      return on_end<End>(handle, error, [&](End& end) { return answer_of(end.arm(), error); });
    };
  }
}

// kOpen makes an end, as a Result<std::unique_ptr<End>>, from what Ronde tells it, and fills in
// what it has found; nullptr for ends that transport_over() gets.
template <typename End, auto kOpen = nullptr>
constexpr ronde_transport table_of(const char* name = "", const char* library = "",
                                   std::int32_t mpi_family = 0,
                                   const ronde_meeting* meeting = nullptr) {
  using Handle = ronde_transport_end*;
  using Error = ronde_transport_error*;
  ronde_transport table{};
  table.version = RONDE_TRANSPORT_VERSION;
  table.name = name;
  table.struct_size = sizeof table;
  table.library = library;
  table.mpi_family = mpi_family;
  table.meeting = meeting;
  if constexpr (kOpen != nullptr) {
    table.open = [](const ronde_transport_host* host, Handle* handle, ronde_transport_info* info,
                    Error error) {
      return guarded(error, [&] {
        auto end = kOpen(*host, *info);
        if (!end.ok()) return answer_of(end.status(), error);
        *handle = reinterpret_cast<Handle>(end->release());
        return RONDE_TRANSPORT_OK;
      });
    };
  }
  table.address = [](Handle handle, const void** bytes, std::size_t* length, Error error) {
    return on_end<End>(handle, error, [&](End& end) {
      std::span<const std::byte> address;
      if constexpr (requires { end.address(); }) address = end.address();
      *bytes = address.data();
      *length = address.size();
      return RONDE_TRANSPORT_OK;
    });
  };
  table.connect = [](Handle handle, const void* const* addresses, const std::size_t* lengths,
                     std::int32_t size, Error error) {
    return on_end<End>(handle, error, [&](End& end) {
      std::vector<std::span<const std::byte>> all;
      for (std::size_t rank = 0; rank < base::narrow<std::size_t>(size); ++rank) {
        all.emplace_back(static_cast<const std::byte*>(addresses[rank]), lengths[rank]);
      }
      if constexpr (requires { end.connect(all); }) return answer_of(end.connect(all), error);
      return RONDE_TRANSPORT_OK;
    });
  };
  add_messages<End>(table);
  table.abandon = [](Handle handle) {
    if constexpr (requires(End& end) { end.abandon(); }) reinterpret_cast<End*>(handle)->abandon();
  };
  table.close = [](Handle handle, std::int64_t patience_ns) {
    std::unique_ptr<End> end(reinterpret_cast<End*>(handle));
    const base::Nanoseconds patience(patience_ns);
    if constexpr (requires { End::close(std::move(end), patience); }) {
      End::close(std::move(end), patience);
    }
  };
  return table;
}

// A transport over an end of this process that no plug-in has made.
template <typename End>
Transport transport_over(std::unique_ptr<End> end, int rank, int size, bool polled,
                         int largest_tag = std::numeric_limits<int>::max()) {
  static constexpr ronde_transport kTable = table_of<End>();
  return {kTable,
          reinterpret_cast<ronde_transport_end*>(end.release()),
          {.rank = rank, .size = size},
          polled,
          largest_tag};
}

}  // namespace ronde::collectives
