// SPDX-License-Identifier: Apache-2.0
// How the ranks of a host meet in a prepared operation: each writes lines of its own alone and
// reads those of the others. It is a template over its words, whose real ones are in lines.h; the
// test runs the same text in a model and visits every interleaving, delayed stores and deaths
// included.
//
// The words, and who may change them (all of them are those of one rank, and only it writes them):
// - sequence, twice: the number of the call whose bytes lie beside it, in the line of odd and of
//   even calls. Calls count from 1 and wrap around. Before the first call the lines hold 0 (even)
//   and -1 (odd).
// - sleeps: 1: this rank sleeps, or is about to, and must be rung for.
// - ended: this rank posts nothing more, and no call that waits for it can end.
//
// Call k on each rank, where everybody needs everybody (allreduce, barrier, allgather):
//   write bytes into line k mod 2; sequence = k                            (seq_cst)
//   wait until the line k mod 2 of each other rank says k; read them
// Nobody's line k mod 2 is written again before call k + 2, which its rank begins after it has seen
// k + 1 of everybody, and whoever posts k + 1 has read all of call k. So two lines are enough, and
// a line never says more than k while a rank waits for k.
//
// Where one rank gives (broadcast), the others post k when they have read: an acknowledgement. The
// root is up to two calls ahead: before it writes call k it waits until everybody's line k mod 2
// says k - 2.
//
// Why no rank sleeps for ever: both sides write their own word before they read the other's, and
// both words are seq_cst.
//   poster:   sequence = k;   then rings those whose `sleeps` is 1
//   sleeper:  sleeps = 1;     then looks at the sequences once more, and only then sleeps
// A ring that comes between the look and the sleep is kept, as a doorbell does.
//
// A rank that waits no longer ends the operation for all (give_up): `ended` = 1, then it takes back
// what it has posted of the call that has not ended, and rings everybody. Whoever has seen the post
// before has the bytes of a whole call; whoever comes later finds that it is not there, and, since
// `ended` was written before, why. Whoever hears of an end while it waits gives up, too, since
// others may wait for it alone.
#pragma once

namespace ronde::collectives {

// Words provides:
// - Sequence, an unsigned integer that wraps around; rank(), ranks()
// - sequence(rank, line), post(line, Sequence): seq_cst; sleeps(rank), set_sleeps(bool): seq_cst
// - ring(rank): what sleep() of that rank returns for
// - watch(): waits a moment; false when it is time to sleep
// - sleep(): until this rank is rung, or may return at any time before
// - over(): true: no more waiting, since the job has failed, it is too late, or a rank that is
//   waited for has ended
// - set_ended(): seq_cst
//
// Thread safety: one thread at a time.
template <typename Words>
class LineProtocol {
 public:
  using Sequence = typename Words::Sequence;
  explicit LineProtocol(Words& words) : words_(words) {}

  static int line_of(Sequence call) { return static_cast<int>(call % 2); }

  // What lies in this rank's line of the call can be read from now on, or, where it only reads,
  // has been read.
  void post(Sequence call) {
    words_.post(line_of(call), call);
    for (int rank = 0; rank < words_.ranks(); ++rank) {
      if (rank != words_.rank() && words_.sleeps(rank)) words_.ring(rank);
    }
  }

  [[nodiscard]] bool has_posted(int rank, Sequence call) const {
    return words_.sequence(rank, line_of(call)) == call;
  }
  [[nodiscard]] bool all_have_posted(Sequence call) const {
    for (int rank = 0; rank < words_.ranks(); ++rank) {
      if (rank != words_.rank() && !has_posted(rank, call)) return false;
    }
    return true;
  }
  // For the root of a broadcast: whether its line of the call has been read by all.
  [[nodiscard]] bool may_write(Sequence call) const {
    return all_have_posted(static_cast<Sequence>(call - 2));
  }

  // Ends the operation for all. has_posted: this rank has posted the call, and takes that back.
  void give_up(Sequence call, bool has_posted) {
    words_.set_ended();
    if (has_posted) words_.post(line_of(call), static_cast<Sequence>(call - 2));
    for (int rank = 0; rank < words_.ranks(); ++rank) {
      if (rank != words_.rank()) words_.ring(rank);
    }
  }

  // False where it was over before.
  template <typename Ready>
  bool await(const Ready& ready) {
    while (!ready()) {
      if (words_.over()) return false;
      if (words_.watch()) continue;
      words_.set_sleeps(true);
      if (!ready()) words_.sleep();
      words_.set_sleeps(false);
    }
    return true;
  }

 private:
  Words& words_;
};

}  // namespace ronde::collectives
