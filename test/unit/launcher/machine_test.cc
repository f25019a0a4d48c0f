// SPDX-License-Identifier: Apache-2.0
// Programs in a folder of our own; what can be said of any machine.
#include "launcher/machine.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "launcher/host_files.h"

namespace ronde::launcher {
namespace {

TEST(MachineTest, FactsAreWithinReason) {
  const Facts facts = facts_of_this_machine("");
  EXPECT_GE(facts.cores, 1);
  EXPECT_LE(facts.cores, sysconf(_SC_NPROCESSORS_CONF));
  EXPECT_GE(facts.slots, 1);
  EXPECT_LE(facts.slots, sysconf(_SC_NPROCESSORS_CONF));
  EXPECT_EQ(facts.is_root, geteuid() == 0);
  EXPECT_FALSE(facts.environment.empty());
}

class FindProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "ronde-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::filesystem::create_directory(folder_ / "sub");
    write("text", 0644);
    write("program", 0755);
    write("sub/text", 0755);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, mode_t mode) const {
    std::ofstream(folder_ / name) << "#!/bin/sh\n";
    ASSERT_EQ(chmod((folder_ / name).c_str(), mode), 0);
  }
  [[nodiscard]] std::string at(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
};

TEST_F(FindProgramTest, PathsAreTakenAsTheyAre) {
  EXPECT_EQ(find_program(at("program"), "").found, Found::kYes);
  EXPECT_EQ(find_program(at("text"), "").found, Found::kNotExecutable);
  EXPECT_EQ(find_program(at("sub"), "").found, Found::kNotExecutable);  // a folder
  EXPECT_EQ(find_program(at("none"), at("")).found, Found::kNo);
}

TEST_F(FindProgramTest, NamesAreSearched) {
  const std::string path = "/nowhere:" + folder_.string() + ":" + at("sub");
  EXPECT_EQ(find_program("program", path).path, at("program"));
  EXPECT_EQ(find_program("program", "/nowhere").found, Found::kNo);
  EXPECT_EQ(find_program("program", "").found, Found::kNo);
  // As in a shell, a file that cannot run does not hide one that can.
  EXPECT_EQ(find_program("text", path).found, Found::kYes);
  EXPECT_EQ(find_program("text", path).path, at("sub/text"));
  EXPECT_EQ(find_program("text", folder_.string()).found, Found::kNotExecutable);
}

TEST(FactsTest, EveryJobHasAnotherName) {
  const std::string job = facts_of_this_machine("").job;
  EXPECT_EQ(job.size(), 16U);
  EXPECT_EQ(job.find_first_not_of("0123456789abcdef"), std::string::npos) << job;
  EXPECT_NE(job, facts_of_this_machine("").job);
}

TEST_F(FindProgramTest, TheLastLineOfAFile) {
  const auto append = [&](const std::string& text) {
    std::ofstream(folder_ / "rank.0.err", std::ios::app) << text;
    return last_line_of(at("rank.0.err"));
  };
  EXPECT_EQ(last_line_of(at("none")), "");
  EXPECT_EQ(append(std::string(20000, 'x') + "\nlate\n\n"), "late");
  EXPECT_EQ(append("ronderun: restart 1, 2026\n"), "") << "one of ronderun's own";
}

TEST_F(FindProgramTest, TheMpiOfAProgram) {
  EXPECT_EQ(mpi_of_program(at("program")), "") << "a script, which must not run";
  EXPECT_EQ(mpi_of_program("/proc/self/exe"), "");
  EXPECT_EQ(mpi_of_program(at("none")), "");
}

TEST(FactsTest, TheNodesOfMemoryHaveAllProcessors) {
  std::size_t processors = 0;
  for (const auto& node : processors_of_nodes()) processors += node.size();
  EXPECT_GE(processors, static_cast<std::size_t>(facts_of_this_machine("").cores));
}

}  // namespace
}  // namespace ronde::launcher
