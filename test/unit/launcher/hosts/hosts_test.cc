// SPDX-License-Identifier: Apache-2.0
// Every source of hosts, every way to say nonsense there, and which rank runs where.
#include "launcher/hosts/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace ronde::launcher {
namespace {

using base::Code;
using base::Status;
using testing::AllOf;
using testing::HasSubstr;

const Self kSelf{{"node1.cluster.local", "10.0.0.1", "fd00::1"}, "me"};

struct Given {
  std::string list = "";
  std::string hostfile = "";
  std::vector<std::string> environment = {};
  std::map<std::string, std::string> files = {};
};

std::string text_of(const base::Result<std::vector<Host>>& hosts) {
  if (!hosts.ok()) {
    EXPECT_EQ(hosts.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(hosts.status().message().find('\n'), std::string::npos);
    return hosts.status().message();
  }
  std::string text;
  for (const Host& host : *hosts) {
    text += (text.empty() ? "" : " ") + host.name + "=" + std::to_string(host.slots) +
            (host.here ? "!" : "");
  }
  return text;
}

// "a=2 node1=0!": names, slots, and which one is here; or the error.
std::string found(const Given& given) {
  return text_of(hosts_of_job(given.list, given.hostfile, given.environment, kSelf,
                              [&](const std::string& path) -> base::Result<std::string> {
                                const auto file = given.files.find(path);
                                if (file != given.files.end()) return file->second;
                                return Status::error(Code::kInvalidArgument,
                                                     path + " cannot be read");
                              }));
}

std::string listed(const std::string& list) { return found({.list = list}); }
std::string filed(const std::string& text) {
  return found({.hostfile = "hosts", .files = {{"hosts", text}}});
}
std::string allocated(const std::vector<std::string>& environment) {
  return found({.environment = environment, .files = {{"/pbs", "a\na\nnode1\na\n"}}});
}

TEST(Hosts, List) {
  EXPECT_EQ(listed("a:2,b:2"), "a=2 b=2");
  EXPECT_EQ(listed("a"), "a=1");
  EXPECT_EQ(listed("a,b,a"), "a=2 b=1");
  EXPECT_EQ(listed("a:3,a,a:2"), "a=6");
  EXPECT_EQ(listed("me@a:2,you@a"), "me@a=2 you@a=1");
  EXPECT_EQ(listed("[fd00::2]:4,[fe80::1%eth0],you@[fd00::3]:2"),
            "fd00::2=4 fe80::1%eth0=1 you@fd00::3=2");
  EXPECT_EQ(listed("a:1000000, b:2"), "a=1000000 b=2");
}

TEST(Hosts, ListsThatAreNone) {
  for (const std::string word :
       {"a:0",     "a:-1",     "a:x",        "a:",   ":2",    "a:2:3",
        "fd00::1", "[fd00::1", "[fd00::1]4", "[]:4", "[b]:4", "-oProxyCommand=x",
        "@a",      "-u@a",     "a b",        "a;b",  "$(a)",  "a:99999999",
        "me@",     "+n0",      "^a"}) {
    EXPECT_THAT(listed("x:1," + word), HasSubstr(": " + word + " is no host: write it as in "))
        << word;
  }
  EXPECT_THAT(listed("a/b"), HasSubstr("-H a/b: a/b is no host"));
  EXPECT_THAT(listed(","), HasSubstr("-H , names no host"));
  EXPECT_THAT(listed(std::string(100000, 'a')), HasSubstr("is no host"));
}

TEST(Hosts, Hostfile) {
  EXPECT_EQ(filed("node2 slots=8 max_slots=8\nnode3:8\nnode4\n"), "node2=8 node3=8 node4=0");
  EXPECT_EQ(filed("# all of them\n\n  a slots = 2  # two\r\n\t\nb:3 max-slots=3#three"), "a=2 b=3");
  EXPECT_EQ(filed("pod-0.worker slots=8\npod-1.worker:8\n"), "pod-0.worker=8 pod-1.worker=8");
  EXPECT_EQ(filed("a\nb\na\n"), "a=2 b=0") << "mpirun counts the lines of a host";
  EXPECT_EQ(filed("a slots=2\na slots=3\n"), "a=5");
  EXPECT_EQ(filed("a slots=0\nb slots=1\n"), "b=1");
  EXPECT_EQ(filed("me@a\n[fd00::2]:2\n"), "me@a=0 fd00::2=2");
}

TEST(Hosts, HostfilesThatAreNone) {
  for (const std::string line :
       {"a slots=", "a slots=x", "a slot=2", "a 2", "a:2 slots=2", "a slots=2 slots=3", "=2",
        "a slots", "a slots=-1", "a max_slots=x", "a b", "a slots=99999999"}) {
    EXPECT_THAT(filed("# comment\nb\n" + line + "\n"),
                AllOf(HasSubstr("--hostfile hosts, line 3: " + line + " is no host"),
                      HasSubstr("node1 slots=8")))
        << line;
  }
  for (const std::string nothing : {"", "\n", "# a\n", "a slots=0"}) {
    EXPECT_THAT(filed(nothing), HasSubstr("--hostfile hosts names no host: write")) << nothing;
  }
  EXPECT_EQ(found({.hostfile = "other"}), "other cannot be read");
}

TEST(Hosts, Slurm) {
  EXPECT_EQ(allocated({"SLURM_JOB_NODELIST=node[01-03,07],gpu-[1-2]x",
                       "SLURM_TASKS_PER_NODE=8(x3),4,2(x2)"}),
            "node01=8 node02=8 node03=8 node07=4 gpu-1x=2 gpu-2x=2");
  EXPECT_EQ(allocated({"SLURM_JOB_NODELIST=node[1-2]", "SLURM_JOB_CPUS_PER_NODE=16(x2)"}),
            "node1=16! node2=16");
  EXPECT_EQ(allocated({"SLURM_JOB_NODELIST=a", "SLURM_TASKS_PER_NODE=3",
                       "SLURM_JOB_CPUS_PER_NODE=16", "PBS_NODEFILE=/pbs"}),
            "a=3");
  EXPECT_EQ(allocated({"SLURM_JOB_NODELIST=a,b"}), "a=0 b=0");
  EXPECT_EQ(allocated({"SLURM_JOB_ID=3"}), "node1.cluster.local=0!");
}

TEST(Hosts, SlurmsNonsense) {
  for (const std::string list : {"n[1", "n[2-1]", "a,,b", "-oProxyCommand=x,a", "a;b"}) {
    EXPECT_THAT(allocated({"SLURM_JOB_NODELIST=" + list}),
                HasSubstr("SLURM_JOB_NODELIST=" + list + " is not valid: expected a list of hosts"))
        << list;
  }
  for (const std::string numbers : {"8", "8(x3)", "8(x", "8(x2", "(x2)", "x", "8,", "0,1",
                                    "8(x0),1,1", "8(2)", "8(x9999999)"}) {
    EXPECT_THAT(allocated({"SLURM_JOB_NODELIST=n[1-2]", "SLURM_TASKS_PER_NODE=" + numbers}),
                AllOf(HasSubstr("SLURM_TASKS_PER_NODE=" + numbers + " has no number for each of "),
                      HasSubstr("the 2 hosts of SLURM_JOB_NODELIST=n[1-2]")))
        << numbers;
  }
}

TEST(Hosts, Pbs) {
  EXPECT_EQ(allocated({"PBS_NODEFILE=/pbs"}), "a=3 node1=1!");
  EXPECT_EQ(allocated({"PBS_NODEFILE=/none"}), "/none cannot be read");
  EXPECT_EQ(found({.environment = {"OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile"},
                   .files = {{"/etc/mpi/hostfile",
                              "job-worker-0.job slots=2\njob-worker-1.job slots=2\n"}}}),
            "job-worker-0.job=2 job-worker-1.job=2");
  EXPECT_THAT(found({.environment = {"PBS_NODEFILE=/f"}, .files = {{"/f", "a\n-b\n"}}}),
              HasSubstr("PBS_NODEFILE=/f, line 2: -b is no host"));
}

TEST(Hosts, OptionsBeforeAllocations) {
  const std::vector<std::string> slurm{"SLURM_JOB_NODELIST=n[1-2]", "PBS_NODEFILE=/pbs"};
  EXPECT_EQ(found({.list = "a:2", .environment = slurm}), "a=2");
  EXPECT_EQ(found({.hostfile = "f", .environment = slurm, .files = {{"f", "b:2"}}}), "b=2");
  EXPECT_EQ(found({}), "node1.cluster.local=0!");
  EXPECT_EQ(text_of(hosts_of_job("", "", {}, {}, nullptr)), "localhost=0!");
  EXPECT_THAT(found({.list = "a", .hostfile = "f"}),
              HasSubstr("-H a and --hostfile f both name hosts: leave one of them out"));
}

TEST(Hosts, Here) {
  for (const std::string name :
       {"node1", "NODE1", "node1.cluster.local", "node1.cluster", "localhost", "127.0.0.1",
        "127.1.2.3", "[::1]", "10.0.0.1", "[fd00::1]", "me@node1", "me@localhost",
        "localhost.localdomain"}) {
    EXPECT_THAT(listed(name), HasSubstr("=1!")) << name;
  }
  for (const std::string name :
       {"node10", "node", "node1.elsewhere", "10.0.0.10", "10", "10.0", "[fd00::10]", "you@node1",
        "me@node2", "localhost2", "a.localhost"}) {
    EXPECT_EQ(listed(name).find('!'), std::string::npos) << name;
  }
}

TEST(Hosts, AShortNameIsThatOfAnyDomain) {
  const auto hosts =
      hosts_of_job("pod-0.worker:2,pod-1.worker:2", "", {}, {{"pod-0"}, ""}, nullptr);
  EXPECT_EQ(text_of(hosts), "pod-0.worker=2! pod-1.worker=2");
}

TEST(Hosts, ThisHostIsOneUnderAllOfItsNames) {
  EXPECT_EQ(listed("localhost:2,a,node1:3,127.0.0.1"), "localhost=6! a=1");
}

// "node1:0-1 a:2-4", with the message behind it; or the error.
std::string placed(const std::vector<Host>& hosts, std::optional<std::int64_t> ranks,
                   std::int64_t cores = 2) {
  const auto placement = place(hosts, ranks, cores);
  if (!placement.ok()) {
    EXPECT_EQ(placement.status().code(), Code::kInvalidArgument);
    return placement.status().message();
  }
  std::string text;
  std::int64_t next = 0;
  for (const Block& block : placement->blocks) {
    EXPECT_EQ(block.first, next);
    EXPECT_GT(block.ranks, 0);
    next += block.ranks;
    text += (text.empty() ? "" : " ") + block.host.name + ":" + std::to_string(block.first) + "-" +
            std::to_string(next - 1);
  }
  EXPECT_EQ(ranks.value_or(next), next);
  return text + (placement->message.empty() ? "" : "; " + placement->message);
}

const std::vector<Host> kTwo{{"a", 4}, {"b", 2}};
const std::vector<Host> kHere{{"node1", 0, true}};

TEST(Place, InBlocksByHost) {
  EXPECT_EQ(placed(kTwo, 6), "a:0-3 b:4-5");
  EXPECT_EQ(placed(kTwo, {}), "a:0-3 b:4-5");
  EXPECT_EQ(placed(kTwo, 5), "a:0-3 b:4-4");
  EXPECT_EQ(placed(kTwo, 4), "a:0-3") << "a host without a rank is left out";
  EXPECT_EQ(placed(kTwo, 1), "a:0-0");
}

TEST(Place, OnThisHostAlone) {
  EXPECT_EQ(placed(kHere, {}), "node1:0-1");
  EXPECT_EQ(placed(kHere, 2), "node1:0-1");
  EXPECT_EQ(placed(kHere, 6), "node1:0-5; 6 ranks on 2 cores: the ranks take turns");
  EXPECT_EQ(placed(kHere, 2, 1), "node1:0-1; 2 ranks on 1 core: the ranks take turns");
  EXPECT_EQ(placed({{"node1", 4, true}}, 4), "node1:0-3") << "somebody wants so many";
  EXPECT_EQ(placed({{"node1", 1, true}}, 2),
            "-np 2 is more than the 1 slot of node1: write -H node1:2, or use fewer ranks");
}

TEST(Place, WhereSlotsAreNotSaid) {
  const std::vector<Host> silent{{"a"}, {"b"}, {"c"}};
  EXPECT_EQ(placed(silent, 4), "a:0-1 b:2-2 c:3-3");
  EXPECT_EQ(placed(silent, 6), "a:0-1 b:2-3 c:4-5");
  EXPECT_EQ(placed(silent, 2), "a:0-0 b:1-1");
  EXPECT_EQ(placed({{"node1", 0, true}, {"a"}, {"b"}}, 7), "node1:0-1 a:2-4 b:5-6");
  EXPECT_EQ(placed({{"a", 4}, {"b"}}, 6), "a:0-3 b:4-5");
  EXPECT_EQ(placed({{"a"}, {"b", 4}}, 3), "a:0-0 b:1-2");
  EXPECT_EQ(placed({{"node1", 0, true}, {"a", 3}}, {}), "node1:0-1 a:2-4");
  EXPECT_EQ(placed({{"node1", 0, true}, {"a"}}, {}),
            "nobody says how many ranks run on a: write -np N, or -H node1:1,a:1 with the slots of "
            "each");
}

TEST(Place, MoreRanksThanSlots) {
  EXPECT_EQ(placed(kTwo, 8),
            "-np 8 is more than the 6 slots of 2 hosts: write -H a:4,b:4, or use fewer ranks");
  EXPECT_EQ(placed({{"a", 1}}, 2),
            "-np 2 is more than the 1 slot of a: write -H a:2, or use fewer ranks");
  EXPECT_EQ(placed({{"node1", 0, true}, {"me@fd00::2", 1}}, 4),
            "-np 4 is more than the 3 slots of 2 hosts: write -H node1:2,me@[fd00::2]:2, or use "
            "fewer ranks");
  EXPECT_THAT(placed({{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}}, 6),
              HasSubstr("5 hosts: write -H a:2,b:2,c:2,d:2,..., or"));
}

TEST(Place, Limits) {
  EXPECT_EQ(placed(kHere, 1024, 2000), "node1:0-1023");
  EXPECT_EQ(placed(kHere, 1025),
            "-np 1025 puts 1025 ranks on node1, more than the 1024 that one host can have: use "
            "fewer");
  EXPECT_THAT(placed({{"a", 2000}, {"b", 2000}}, 2000), HasSubstr("-np 2000 puts 2000 ranks on a"));
  EXPECT_THAT(placed({{"a", 2000}}, {}), HasSubstr("a rank for each of 2000 slots puts 2000"));
  std::vector<Host> hosts;
  for (int i = 0; i < 1025; ++i) hosts.push_back({"h" + std::to_string(i), 1024});
  EXPECT_THAT(placed(hosts, 1 << 20), HasSubstr("h1023:1047552-1048575"));
  EXPECT_EQ(placed(hosts, (1 << 20) + 1),
            "-np 1048577 is more than the 1048576 ranks that a job can have: use fewer");
  EXPECT_THAT(placed(hosts, {}), HasSubstr("1049600 slots is more than the 1048576 ranks"));
}

TEST(Hosts, Without) {
  EXPECT_EQ(text_of(without(kTwo, "a")), "b=2");
  EXPECT_EQ(text_of(without(kTwo, "c")), "a=4 b=2");
}

}  // namespace
}  // namespace ronde::launcher
