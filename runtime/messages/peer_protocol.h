// SPDX-License-Identifier: Apache-2.0
// How two ranks of a host meet for messages: who rings whom, and when nobody reads memory that its
// owner has taken back. It is a template over its words, whose real ones are in channel.h; the test
// runs the same text in a model and visits every interleaving, delayed stores included.
//
// The words, and who may change them:
// - written (of the channel from a sender to a receiver): how many bytes of records are there. Only
//   the sender writes it; byte_stream.h has the rest of the stream.
// - awaits, of each rank: 1: it has messages in flight, or is closing, and must be rung for what
//   comes to it. Only that rank writes it. Without it nobody is woken: what comes stays in the
//   channel until the rank looks for its own sake. (A ring is due all the same where the channel is
//   full, since the sender's bytes wait then for a receiver that looks.)
// - revoked (of a channel): 1: no memory that the sender has offered in it may be read any more.
//   Only the sender writes it, before it ends the works of its offers.
// - reading (of a channel): 1: the receiver copies, or is about to, from memory that the sender has
//   offered. Only the receiver writes it, and only where both are threads of one process: another
//   process copies by a call of the system that fails where memory is gone.
//
// Why no rank sleeps for ever: both sides write their own word before they read the other's, and
// all of them are seq_cst.
//   sender:    written += n;  then rings if `awaits` is 1
//   receiver:  awaits = 1;    then looks for records, and only then sleeps
// A ring that comes between the look and the sleep is kept, as a doorbell does.
//
// Why nobody reads what was taken back:
//   receiver:  reading = 1;   then copies unless `revoked` is 1; reading = 0
//   sender:    revoked = 1;   then waits while `reading` is 1, for as long as a piece takes
// Whoever copied by a call of the system looks at `revoked` after it: what it has copied counts
// only where that is 0, since it was whole then.
#pragma once

namespace ronde::runtime {

// Words provides, for the other rank of a channel:
// - awaits(), ring(): of the other rank; set_awaits(bool): of this rank
// - revoked(), revoke_word(): sets it; reading(), set_reading(bool)
// - pause(): lets time pass
//
// Thread safety: that of the words.
template <typename Words>
class PeerProtocol {
 public:
  explicit PeerProtocol(Words& words) : words_(words) {}

  // The sender has written records. full: some did not fit.
  void announce(bool full) {
    if (full || words_.awaits()) words_.ring();
  }

  // The receiver wants to be rung from now on. It looks for records after this, before it sleeps.
  void want() { words_.set_awaits(true); }

  // Copies what the sender has offered; false: it has been taken back.
  template <typename Copy>
  bool read(const Copy& copy) {
    words_.set_reading(true);
    const bool may = !words_.revoked();
    if (may) copy();
    words_.set_reading(false);
    return may;
  }

  // The sender takes back all that it has offered, for good.
  void revoke() {
    words_.revoke_word();
    while (words_.reading()) words_.pause();
  }

 private:
  Words& words_;
};

}  // namespace ronde::runtime
