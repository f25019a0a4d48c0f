// SPDX-License-Identifier: Apache-2.0
// The collectives by which ranks exchange an exit code or the text of an error.
#include "examples/perf/contenders/agreement.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <span>

#include "examples/perf/options/options.h"

namespace ronde::perf {

void on_rank_0(Engine& engine, const std::function<int()>& work) {
  std::int32_t code = 0;
  std::string message;
  if (engine.rank() == 0) {
    try {
      code = work();
    } catch (const UsageError& error) {
      code = kUsage;
      message = error.what();
    } catch (const std::exception& error) {
      code = kWrong;
      message = error.what();
    }
  }
  engine.broadcast_blocking("perf/exit-code", std::span(&code, 1), 0);
  if (code != 0) throw EveryRanksError(code, message);
}

void on_every_rank(Engine& engine, const std::function<void()>& work) {
  std::array<std::uint8_t, 1024> text{};
  std::int32_t failed = engine.size();  // the first rank whose work failed
  try {
    work();
  } catch (const std::exception& error) {
    const std::string message = error.what();
    failed = engine.rank();
    std::copy_n(message.begin(), std::min(message.size(), text.size() - 1), text.begin());
  }
  engine.allreduce_blocking("perf/failed", std::span(&failed, 1), ronde::min);
  if (failed == engine.size()) return;
  engine.broadcast_blocking("perf/failure", std::span(text), failed);
  const std::string message(text.begin(), std::find(text.begin(), text.end(), 0));
  throw EveryRanksError(kWrong,
                        failed == 0 ? message : "rank " + std::to_string(failed) + ": " + message);
}

}  // namespace ronde::perf
