// SPDX-License-Identifier: Apache-2.0
// The schedule of the ring: what a rank does with which chunk, turn by turn. The arithmetic is pure
// and apart from the bytes and the messages (ring.cc), so that it can be tested for every rank of
// every size.
//
// n ranks stand in a ring; each receives from the previous and sends to the next. The vector has n
// chunks. Chunk c starts on rank c+1 and walks: every rank adds its contribution and passes it on,
// until rank c, the last, has the whole sum. Then the sum walks on, and every rank keeps a copy.
//
//   n = 4, chunk 0:    rank 1 ──► rank 2 ──► rank 3 ──► rank 0 ──► rank 1 ──► rank 2 ──► rank 3
//                      send       reduce     reduce     reduce     copy       copy       copy
//   turn of the rank   0          1          2          3          4          5          6
//
// All n chunks walk at once, each one rank behind the next, so every rank always has one thing to
// do: in turn t, rank r deals with chunk r-1-t (modulo n). That is 2(n-1) steps in which each rank
// sends 1/n of the vector: 2(n-1)/n of its bytes in all, the least any allreduce can do. Chunk c is
// summed in the order c+1, c+2, ..., c, which is the order rule across hosts.
//
// A reduce-scatter is the first half of the same walk: it ends in the turn in which each rank gets
// its own chunk whole. An allgather is the second half, and begins there.
#pragma once

namespace ronde::collectives {

enum class RingKind { kAllreduce, kReduceScatter, kAllgather };

// "Copy" is to the user's output; "reduce" adds the user's input.
enum class RingVerb {
  kSend,                   // this rank's contribution begins a sum
  kReceiveReduceSend,      // a partial sum arrives and goes on
  kReceiveReduceCopySend,  // this rank's own chunk arrives, becomes the whole sum and goes on
  kReceiveReduceCopy,      // reduce-scatter: this rank's own chunk arrives, and goes no further
  kReceiveCopySend,        // a whole sum arrives and goes on
  kReceiveCopy,            // the last sum arrives; the next rank already has it
  kCopySend,               // allgather: this rank's own block begins its walk
  kReduceCopy,             // allreduce or reduce-scatter of one rank
  kCopy,                   // allgather of one rank
};

[[nodiscard]] bool receives(RingVerb verb);
[[nodiscard]] bool sends(RingVerb verb);

struct RingTurn {
  RingVerb verb;
  int chunk;
  friend bool operator==(const RingTurn&, const RingTurn&) = default;
};

// Thread safety: a value.
class RingPlan {
 public:
  RingPlan(RingKind kind, int rank, int size);

  [[nodiscard]] int turns() const;
  [[nodiscard]] RingTurn turn(int index) const;
  // The neighbours: this rank sends to next() and receives from previous().
  [[nodiscard]] int next() const { return (rank_ + 1) % size_; }
  [[nodiscard]] int previous() const { return (rank_ + size_ - 1) % size_; }

 private:
  RingKind kind_;
  int rank_;
  int size_;
};

}  // namespace ronde::collectives
