// SPDX-License-Identifier: Apache-2.0
// What is called when the process exits, after the destructors of the program's static objects: for
// jobs that the program has left open, although what they stand on must end in order (MPI that
// Ronde started).
#pragma once

#include <functional>

namespace ronde::runtime {

// Has `close` called at that time, unless forget_at_end() came before. `key` tells registrations
// apart. A forked child calls nothing that its parent has registered. Thread safety: any thread.
void call_at_end(const void* key, std::function<void()> close);
void forget_at_end(const void* key);

}  // namespace ronde::runtime
