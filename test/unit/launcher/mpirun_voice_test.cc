// SPDX-License-Identifier: Apache-2.0
// What of mpirun's words passes, and what is understood, at every cut of the stream.
// The texts are those of Open MPI 4.1.4.
#include "launcher/mpirun_voice.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace ronde::launcher {
namespace {

const std::string kRule = std::string(74, '-') + "\n";

std::string boxed(const std::string& text) { return kRule + text + kRule; }

const std::string kPrimary = boxed(
    "Primary job  terminated normally, but 1 process returned\n"
    "a non-zero exit code. Per user-direction, the job has been aborted.\n");
const std::string kExitCode = boxed(
    "mpirun detected that one or more processes exited with non-zero status, thus causing\n"
    "the job to be terminated. The first process to do so was:\n\n"
    "  Process name: [[22624,1],13]\n  Exit code:    7\n");
const std::string kSignal = boxed(
    "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).\n");
const std::string kNoSlots = boxed(
    "There are not enough slots available in the system to satisfy the 4\n"
    "slots that were requested by the application:\n\n  true\n");
const std::string kNoDaemon = boxed(
    "ORTE was unable to reliably start one or more daemons.\nThis usually is caused by:\n\n"
    "* not finding the required libraries and/or binaries on\n");

struct Heard {
  std::string shown;
  Cause cause;
};

// Passes the text in two parts.
Heard hear(const std::string& text, std::size_t cut) {
  MpirunVoice voice;
  Heard heard;
  heard.shown = voice.pass(std::string_view(text).substr(0, cut));
  heard.shown += voice.pass(std::string_view(text).substr(cut));
  heard.shown += voice.finish();
  heard.cause = voice.cause();
  return heard;
}

// Expects the same whatever the cut, and returns the cause.
Cause expect_shown(const std::string& text, const std::string& shown) {
  Cause cause;
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const Heard heard = hear(text, cut);
    EXPECT_EQ(heard.shown, shown) << "cut at " << cut;
    if (cut > 0) {
      EXPECT_EQ(heard.cause.rank, cause.rank) << "cut at " << cut;
    }
    cause = heard.cause;
  }
  return cause;
}

TEST(MpirunVoice, TheFirstRankThatFailed) {
  const Cause code = expect_shown("the data is missing\n" + kPrimary + kExitCode + "bye\n",
                                  "the data is missing\nbye\n");
  EXPECT_EQ(code.rank, 13);
  EXPECT_EQ(code.host, "");
  const Cause killed = expect_shown(kPrimary + kSignal, "");
  EXPECT_EQ(killed.rank, 1);
  EXPECT_EQ(killed.host, "vm");
  EXPECT_EQ(expect_shown(boxed("MPI_ABORT was invoked on rank 2 in communicator MPI_COMM_WORLD\n"
                               "with errorcode 3.\n") +
                             kExitCode,
                         "")
                .rank,
            2);
}

TEST(MpirunVoice, RanksSayTheirHosts) {
  const Cause cause = expect_shown(
      "ronderun: the host of rank 0 is a\n"
      "ronderun: the host of rank 13 is node-b\n" +
          kExitCode,
      "");
  EXPECT_EQ(cause.rank, 13);
  EXPECT_EQ(cause.host, "node-b");
}

TEST(MpirunVoice, WhyNothingStarted) {
  EXPECT_EQ(expect_shown(kNoSlots, "").trouble.find("there are fewer slots than ranks"), 0U);
  const Cause unknown = expect_shown(
      "ssh: Could not resolve hostname nosuchhost: Name or service not known\n" + kNoDaemon, "");
  EXPECT_EQ(unknown.trouble,
            "host nosuchhost cannot be reached: Could not resolve hostname nosuchhost: Name or "
            "service not known");
  EXPECT_NE(expect_shown(kNoDaemon, "").trouble.find("is it reachable"), std::string::npos);
}

TEST(MpirunVoice, AForwardedSignalIsNoNews) {
  expect_shown("a\nmpirun: Forwarding signal 12 to job\nb\n", "a\nb\n");
  expect_shown("mpirun: Something else\n", "mpirun: Something else\n");
}

TEST(MpirunVoice, TooFewSlotsAreTold) {
  EXPECT_TRUE(expect_shown(kNoSlots, "").too_few_slots);
  EXPECT_FALSE(expect_shown(kNoDaemon, "").too_few_slots);
}

TEST(MpirunVoice, ABrokenPipeIsNobodysFault) {
  const std::string words =
      "[vm:13705] mpirun: SIGPIPE detected on fd 13 - aborting\n"
      "mpirun: abort is already in progress...hit ctrl-c again to forcibly terminate\n\n"
      "[vm:13705] *** Process received signal ***\n"
      "[vm:13705] Signal: Segmentation fault (11)\n";
  EXPECT_TRUE(expect_shown(words, "").broken_pipe);
  const std::string crash = "[vm:13705] *** Process received signal ***\n";
  EXPECT_FALSE(expect_shown(crash, crash).broken_pipe) << "a rank's own";
}

TEST(MpirunVoice, WhatTheRanksPrintPasses) {
  for (const std::string& text :
       {std::string("plain\n"), std::string("no end"), kRule, kRule + kRule,
        kRule + "a table\n" + kRule, std::string("-----\n"), std::string(80, '-') + "\n",
        "x" + kRule + "ssh\nssh: what\n",
        boxed("WARNING: There was an error initializing an OpenFabrics device.\n"),
        std::string("[ 12%] built\n[3:4] x\n[\nronderun: the\n\n\n")}) {
    EXPECT_FALSE(expect_shown(text, text).rank.has_value());
  }
}

// A prompt or a bar of progress has no line end, and must not wait for one.
TEST(MpirunVoice, BeginningsOfLinesPassAtOnce) {
  MpirunVoice voice;
  EXPECT_EQ(voice.pass("epoch 1 ..."), "epoch 1 ...");
  EXPECT_EQ(voice.pass(" 50%\r"), " 50%\r");
  EXPECT_EQ(voice.pass("\n---"), "\n");
  EXPECT_EQ(voice.pass(" x"), "--- x");
}

}  // namespace
}  // namespace ronde::launcher
