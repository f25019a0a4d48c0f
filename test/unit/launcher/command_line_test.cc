// SPDX-License-Identifier: Apache-2.0
// Golden command lines: what ronderun was asked, and the line that mpirun gets.
#include "launcher/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ronde::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Words = std::vector<std::string>;

Facts two_cores(Words environment = {}) {
  Facts facts;
  facts.cores = 2;
  facts.slots = 2;
  facts.job = "0123456789abcdef";
  facts.accelerator = "/lib/accelerator.so";
  facts.environment = std::move(environment);
  return facts;
}

base::Result<CommandLine> made(const Words& words, const Facts& facts) {
  const auto options = parse_options(words);
  EXPECT_TRUE(options.ok()) << options.status().message();
  return make_command_line(*options, facts);
}

struct Golden {
  const char* what;
  Words words;
  Facts facts;
  std::string line;
  Words messages;
};

Facts with(Facts facts, std::int64_t cores, std::int64_t slots, bool is_root = false) {
  facts.cores = cores;
  facts.slots = slots;
  facts.is_root = is_root;
  return facts;
}

std::vector<Golden> golden() {
  // On several hosts each rank says where it runs, for the line about a failure.
  const std::string say_place =
      "sh -c 'echo \"ronderun: the host of rank $OMPI_COMM_WORLD_RANK is $(uname -n)\" >&2; ";
  // By its name alone: everybody on the host can read a command line.
  const std::string secret = "-x RONDE_JOB_SECRET ";
  const std::string rank = "r=\"$0/rank.$OMPI_COMM_WORLD_RANK\"; ";
  const std::string to_pipes = rank + "exec \"$@\" >\"$r.out\" 2>\"$r.err\"' ";
  // Nothing is lost of an earlier start.
  const std::string append =
      ", $(date '\\''+%F %T %z'\\'')\"; echo \"$d\" >>\"$r.err\"; "
      "if [ -s \"$r.out\" ]; then echo \"$d\" >>\"$r.out\"; fi; "
      "exec \"$@\" >>\"$r.out\" 2>>\"$r.err\"' ";
  const std::string to_files = rank + "d=\"ronderun: job start" + append;
  const std::string to_files_again = rank + "d=\"ronderun: restart $RONDE_RESTART_ATTEMPT" + append;
  Facts again = two_cores({"RONDE_RESTART_ATTEMPT=9"});
  again.attempt = 2;
  Facts tagged = two_cores();
  tagged.tag_folder = "/tmp/pipes";
  return {
      {"plain",
       {"-np", "2", "./p", "--flag"},
       two_cores(),
       "mpirun -np 2 --bind-to none ./p --flag",
       {}},
      {"one rank", {"-np", "1", "./p"}, two_cores(), "mpirun -np 1 --bind-to none ./p", {}},
      {"root",
       {"-np", "2", "./p"},
       with(two_cores(), 2, 2, true),
       "mpirun -np 2 --allow-run-as-root --bind-to none ./p",
       {}},
      {"more ranks than cores",
       {"-np", "3", "./p"},
       two_cores(),
       "mpirun -np 3 --bind-to none --oversubscribe ./p",
       {"3 ranks on 2 cores: adding --oversubscribe, the ranks take turns"}},
      {"one core",
       {"-np", "2", "./p"},
       with(two_cores(), 1, 1),
       "mpirun -np 2 --bind-to none --oversubscribe ./p",
       {"2 ranks on 1 core: adding --oversubscribe, the ranks take turns"}},
      {"a quota below the slots",
       {"-np", "2", "./p"},
       with(two_cores(), 1, 8),
       "mpirun -np 2 --bind-to none --oversubscribe ./p",
       {"2 ranks on 1 core: adding --oversubscribe, the ranks take turns"}},
      {"hardware threads: enough of them, but mpirun counts whole cores",
       {"-np", "4", "./p"},
       with(two_cores(), 4, 2),
       "mpirun -np 4 --bind-to none --oversubscribe ./p",
       {}},
      {"the user has asked for it",
       {"-np", "3", "--mpi-args", "--oversubscribe", "./p"},
       two_cores(),
       "mpirun -np 3 --bind-to none --oversubscribe ./p",
       {}},
      {"the user has forbidden it",
       {"-np", "3", "--mpi-args", "--nooversubscribe", "./p"},
       two_cores(),
       "mpirun -np 3 --bind-to none --nooversubscribe ./p",
       {}},
      {"hosts have their own slots",
       {"-np", "3", "-H", "a:2,b:2", "./p"},
       two_cores(),
       "mpirun -np 3 -H a:2,b:2 --bind-to none " + secret + say_place + "exec \"$@\"' sh ./p",
       {}},
      {"a host file too",
       {"-np", "2000", "--hostfile", "my hosts", "./p"},
       two_cores(),
       "mpirun -np 2000 --hostfile 'my hosts' --bind-to none " + secret + say_place +
           "exec \"$@\"' sh ./p",
       {}},
      {"and so has a batch system",
       {"-np", "3", "./p"},
       two_cores({"SLURM_JOB_ID=7"}),
       "mpirun -np 3 --bind-to none " + secret + say_place + "exec \"$@\"' sh ./p",
       {}},
      {"binding",
       {"-np", "2", "--bind-to", "core", "./p"},
       two_cores(),
       "mpirun -np 2 --bind-to core ./p",
       {}},
      {"verbose",
       {"-np", "2", "--verbose", "./p"},
       two_cores(),
       "mpirun -np 2 --bind-to none ./p",
       {}},
      {"verbose on hosts: mpirun's words and nothing of ours",
       {"-np", "2", "--verbose", "-H", "a:2", "./p"},
       two_cores(),
       "mpirun -np 2 -H a:2 --bind-to none " + secret + "./p",
       {}},
      {"a folder for the output",
       {"-np", "2", "--output-dir", "a b", "./p", "x"},
       two_cores(),
       "mpirun -np 2 --bind-to none sh -c 'mkdir -p \"$0\" && " + to_files + "'a b' ./p x",
       {}},
      {"the same on hosts",
       {"-np", "2", "--output-dir", "/d", "-H", "a:2", "./p"},
       two_cores(),
       "mpirun -np 2 -H a:2 --bind-to none " + secret + say_place + "mkdir -p \"$0\" && " +
           to_files + "/d ./p",
       {}},
      {"restarts: the first start",
       {"-np", "2", "--restarts", "3", "--output-dir", "/d", "./p"},
       two_cores(),
       "mpirun -np 2 --bind-to none -x RONDE_RESTART_ATTEMPT=0 -x "
       "RONDE_RESTART_JOB=0123456789abcdef sh -c 'mkdir -p \"$0\" && " +
           to_files + "/d ./p",
       {}},
      {"restarts: a later one",
       {"-np", "2", "--restarts", "3", "-x", "RONDE_RESTART_ATTEMPT=8", "--output-dir", "/d",
        "./p"},
       again,
       "mpirun -np 2 --bind-to none -x RONDE_RESTART_ATTEMPT=2 -x "
       "RONDE_RESTART_JOB=0123456789abcdef sh -c 'mkdir -p \"$0\" && " +
           to_files_again + "/d ./p",
       {}},
      {"the job has a name already",
       {"-np", "2", "--restarts", "3", "./p"},
       two_cores({"RONDE_RESTART_JOB=mine"}),
       "mpirun -np 2 --bind-to none -x RONDE_RESTART_ATTEMPT=0 -x RONDE_RESTART_JOB ./p",
       {}},
      {"an empty one is none",
       {"-np", "2", "--restarts", "3", "./p"},
       two_cores({"RONDE_RESTART_JOB="}),
       "mpirun -np 2 --bind-to none -x RONDE_RESTART_ATTEMPT=0 -x "
       "RONDE_RESTART_JOB=0123456789abcdef ./p",
       {}},
      {"tags, through pipes",
       {"-np", "2", "--tag", "./p", "x"},
       tagged,
       "mpirun -np 2 --bind-to none sh -c '" + to_pipes + "/tmp/pipes ./p x",
       {}},
      {"further options, last, so that they win",
       {"-np", "2", "--mpi-args", "--mca btl 'self,vader'", "./p"},
       two_cores(),
       "mpirun -np 2 --bind-to none --mca btl self,vader ./p",
       {}},
      {"a setting",
       {"-np", "2", "--algorithm", "ring", "./p"},
       two_cores(),
       "mpirun -np 2 --bind-to none -x RONDE_ALGORITHM=ring ./p",
       {}},
      {"settings of the environment, by name; other variables stay",
       {"-np", "2", "./p"},
       two_cores({"RONDE_LOG_LEVEL=info", "HOME=/h", "RONDE_ALGORITHM=ring", "MY_RONDE_X=1"}),
       "mpirun -np 2 --bind-to none -x RONDE_ALGORITHM -x RONDE_LOG_LEVEL ./p",
       {}},
      {"the option wins over the environment",
       {"-np", "2", "--algorithm", "ring", "./p"},
       two_cores({"RONDE_ALGORITHM=auto"}),
       "mpirun -np 2 --bind-to none -x RONDE_ALGORITHM=ring ./p",
       {}},
      {"even over a bad one",
       {"-np", "2", "--algorithm", "ring", "./p"},
       two_cores({"RONDE_ALGORITHM=zigzag"}),
       "mpirun -np 2 --bind-to none -x RONDE_ALGORITHM=ring ./p",
       {}},
      {"the last of two wins",
       {"-np", "2", "--algorithm", "ring", "-x", "RONDE_ALGORITHM=auto", "./p"},
       two_cores(),
       "mpirun -np 2 --bind-to none -x RONDE_ALGORITHM=auto ./p",
       {}},
      {"variables",
       {"-np", "2", "-x", "B=it's", "-x", "A", "./p"},
       two_cores({"A=1"}),
       "mpirun -np 2 --bind-to none -x A -x 'B=it'\\''s' ./p",
       {}},
      {"a library before the program's MPI",
       {"-np", "2", "--accelerate-mpi", "./p"},
       two_cores(),
       "mpirun -np 2 --bind-to none -x LD_PRELOAD=/lib/accelerator.so ./p",
       {}},
      {"... and before what is preloaded already",
       {"-np", "2", "--accelerate-mpi", "./p"},
       two_cores({"LD_PRELOAD=a.so b.so"}),
       "mpirun -np 2 --bind-to none -x 'LD_PRELOAD=/lib/accelerator.so:a.so b.so' ./p",
       {}},
      {"... by an option",
       {"-np", "2", "--accelerate-mpi", "-x", "LD_PRELOAD=c.so", "./p"},
       two_cores({"LD_PRELOAD=a.so"}),
       "mpirun -np 2 --bind-to none -x LD_PRELOAD=/lib/accelerator.so:c.so ./p",
       {}},
      {"where reductions begin to be taken over is no setting of ours",
       {"-np", "2", "./p"},
       two_cores({"RONDE_MPI_ALLREDUCE_BYTES=4096"}),
       "mpirun -np 2 --bind-to none -x RONDE_MPI_ALLREDUCE_BYTES ./p",
       {}},
      {"a misspelt setting is passed on, and said",
       {"-np", "2", "./p"},
       two_cores({"RONDE_ALGORITM=ring"}),
       "mpirun -np 2 --bind-to none -x RONDE_ALGORITM ./p",
       {"RONDE_ALGORITM is not a setting of Ronde: ronderun --help lists them"}},
      {"the program's words are not touched",
       {"-np", "2", "./p", "-x", "", "a b", "--", "-np", "$HOME"},
       two_cores(),
       "mpirun -np 2 --bind-to none ./p -x '' 'a b' -- -np '$HOME'",
       {}},
  };
}

TEST(CommandLineTest, Golden) {
  for (const Golden& golden : golden()) {
    const auto line = made(golden.words, golden.facts);
    ASSERT_TRUE(line.ok()) << golden.what << ": " << line.status().message();
    EXPECT_EQ(shell_quoted(line->argv), golden.line) << golden.what;
    EXPECT_EQ(line->messages, golden.messages) << golden.what;
  }
}

TEST(CommandLineSecret, IsMadeForRanksOnSeveralHostsUnlessTheUserHasOne) {
  EXPECT_TRUE(made({"-np", "2", "-H", "a:1,b:1", "./p"}, two_cores())->needs_secret);
  EXPECT_FALSE(made({"-np", "2", "./p"}, two_cores())->needs_secret) << "all on this host";
  EXPECT_FALSE(made({"-np", "2", "-H", "a:2", "--dry-run", "./p"}, two_cores())->needs_secret);
  for (const char* own : {"RONDE_JOB_SECRET=0123456789abcdef", "RONDE_JOB_SECRET_FILE=/f"}) {
    const auto line = made({"-np", "2", "-H", "a:2", "./p"}, two_cores({own}));
    ASSERT_TRUE(line.ok()) << line.status().message();
    EXPECT_FALSE(line->needs_secret) << own;
    const std::string name(own, std::string(own).find('='));
    EXPECT_THAT(line->argv, testing::Contains(name)) << "passed on, by name";
    EXPECT_THAT(line->messages, IsEmpty());
  }
}

TEST(CommandLineTest, TagsAreForThisHost) {
  const auto line = made({"-np", "2", "--tag", "-H", "a:2", "./p"}, two_cores());
  ASSERT_FALSE(line.ok());
  EXPECT_THAT(line.status().message(), HasSubstr("--output-dir DIR"));
  EXPECT_TRUE(made({"-np", "2", "./p"}, two_cores())->one_host);
  EXPECT_FALSE(made({"-np", "2", "-H", "a:2", "./p"}, two_cores())->one_host);
}

std::string refused(const Words& words, const Facts& facts) {
  const auto line = made(words, facts);
  EXPECT_FALSE(line.ok());
  return line.status().message();
}

TEST(CommandLineTest, RefusesBadSettingsWithTheLineOfTheTable) {
  EXPECT_THAT(refused({"-np", "2", "--algorithm", "zigzag", "./p"}, two_cores()),
              HasSubstr("RONDE_ALGORITHM=zigzag is not valid: use one of: "));
  EXPECT_THAT(refused({"-np", "2", "./p"}, two_cores({"RONDE_SEGMENT_BYTES=1k"})),
              HasSubstr("RONDE_SEGMENT_BYTES=1k is not valid: use a whole number from "));
  EXPECT_THAT(refused({"-np", "2", "-x", "RONDE_LOG_LEVEL=loud", "./p"}, two_cores()),
              HasSubstr("RONDE_LOG_LEVEL=loud is not valid"));
  EXPECT_TRUE(made({"-np", "2", "-x", "RONDE_LOG_LEVEL=", "./p"}, two_cores()).ok()) << "not set";
  EXPECT_THAT(
      refused({"-np", "2", "--stall-warning-seconds", "9", "--stall-failure-seconds", "8", "./p"},
              two_cores()),
      HasSubstr("RONDE_STALL_FAILURE_SECONDS=8 is smaller"));
}

TEST(CommandLineTest, RefusesAbsurdNumbersOfRanks) {
  EXPECT_TRUE(made({"-np", "1024", "./p"}, two_cores()).ok());
  EXPECT_THAT(refused({"-np", "1025", "./p"}, two_cores()), HasSubstr("more than the 1024 ranks"));
  EXPECT_THAT(refused({"-np", "9000000", "-H", "a:9000000", "./p"}, two_cores()),
              HasSubstr("ranks that a job can have"));
}

TEST(CommandLineTest, RefusesAVariableThatIsNotThere) {
  EXPECT_THAT(refused({"-np", "2", "-x", "A", "./p"}, two_cores({"AA=1"})),
              HasSubstr("-x A=VALUE"));
}

TEST(CommandLineTest, RefusesAWordThatMpirunWouldEat) {
  EXPECT_THAT(refused({"-np", "2", "./p", "a", ":", "b"}, two_cores()), HasSubstr("\":\""));
  EXPECT_TRUE(made({"-np", "2", "./p", "a:b"}, two_cores()).ok());
}

TEST(ShellQuotedTest, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(shell_quoted(Words{}), "");
  EXPECT_EQ(shell_quoted(Words{"a", "", "b c", "d'e", "~", "*", "a=b", "\n"}),
            "a '' 'b c' 'd'\\''e' '~' '*' a=b '\n'");
}

}  // namespace
}  // namespace ronde::launcher
