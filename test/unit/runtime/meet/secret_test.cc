// SPDX-License-Identifier: Apache-2.0
// Where a job's secret comes from, and what is refused without showing it.
#include "runtime/meet/secret.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

namespace ronde::runtime {
namespace {

using ::testing::HasSubstr;

const std::string kGood = "0123456789abcdef";

// A file in the tests' folder for temporary files, gone at the end.
class SecretFile {
 public:
  explicit SecretFile(const std::string& content, mode_t mode = 0600)
      : path_(::testing::TempDir() + "ronde-secret-" + std::to_string(::getpid())) {
    std::ofstream(path_, std::ios::binary) << content;
    ::chmod(path_.c_str(), mode);
  }
  ~SecretFile() { ::unlink(path_.c_str()); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;

  [[nodiscard]] std::string line() const { return "RONDE_JOB_SECRET_FILE=" + path_; }

 private:
  std::string path_;
};

std::string secret_in(const std::vector<std::string>& environment) {
  const auto secret = MeetingSecret::of(environment);
  if (!secret.ok()) {
    EXPECT_EQ(secret.status().code(), base::Code::kInvalidArgument);
    EXPECT_EQ(secret.status().to_string().find("0123456789"), std::string::npos)
        << "the secret was printed";
    return "error: " + secret.status().message();
  }
  const auto bytes = secret->bytes();
  return secret->given() ? std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())
                         : "none";
}

TEST(Secret, FromTheEnvironment) {
  EXPECT_EQ(secret_in({}), "none");
  EXPECT_EQ(secret_in({"RONDE_JOB_SECRET="}), "none");
  EXPECT_EQ(secret_in({"RONDE_JOB_SECRET=" + kGood}), kGood);
  EXPECT_EQ(secret_in({"RONDE_JOB_SECRET=" + kGood + " \n"}), kGood);
  EXPECT_THAT(secret_in({"RONDE_JOB_SECRET=0123456789abcde"}),
              HasSubstr("RONDE_JOB_SECRET holds a secret of 15 bytes"));
  EXPECT_THAT(secret_in({"RONDE_JOB_SECRET=   "}), HasSubstr("a secret of 0 bytes"));
  EXPECT_THAT(secret_in({"RONDE_JOB_SECRET=0123456789"}), HasSubstr("head -c 32 /dev/urandom"));
}

TEST(Secret, FromAFile) {
  EXPECT_EQ(secret_in({SecretFile(kGood + "\n").line()}), kGood);
  EXPECT_EQ(secret_in({SecretFile(kGood + "\r\n", 0400).line()}), kGood);
  EXPECT_THAT(secret_in({SecretFile("0123456789").line()}), HasSubstr("a secret of 10 bytes"));
  EXPECT_THAT(secret_in({SecretFile("").line()}), HasSubstr("a secret of 0 bytes"));
  EXPECT_EQ(secret_in({SecretFile(std::string(4096, 'x') + "\n").line()}), std::string(4096, 'x'));
  EXPECT_THAT(secret_in({SecretFile(std::string(4097, 'x')).line()}),
              HasSubstr("holds more than 4096 bytes"));
}

TEST(Secret, OfAFileThatOthersMayRead) {
  for (const mode_t mode : {0640U, 0604U, 0660U, 0644U, 0602U, 0601U}) {
    EXPECT_THAT(secret_in({SecretFile(kGood, mode).line()}), HasSubstr("so others can read"))
        << mode;
  }
  EXPECT_THAT(secret_in({SecretFile(kGood, 0640).line()}), HasSubstr("has mode 0640"));
}

TEST(Secret, OfAFileThatKubernetesHasMadeForAGroup) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes files of root's";
  EXPECT_EQ(secret_in({SecretFile(kGood, 0440).line()}), kGood);
  EXPECT_THAT(secret_in({SecretFile(kGood, 0444).line()}), HasSubstr("has mode 0444"));
}

TEST(Secret, OfThisProcessLeavesTheEnvironmentAndIsKept) {
  const std::string given = "the secret of this test";
  ::setenv("RONDE_JOB_SECRET", given.c_str(), 1);
  for (int engine = 0; engine < 2; ++engine) {
    const auto secret = MeetingSecret::of_this_process();
    ASSERT_TRUE(secret.ok());
    EXPECT_EQ(secret->bytes().size(), given.size());
    EXPECT_EQ(::getenv("RONDE_JOB_SECRET"), nullptr);
  }
  ::setenv("RONDE_JOB_SECRET", kGood.c_str(), 1);
  const auto later = MeetingSecret::of_this_process();
  ASSERT_TRUE(later.ok());
  EXPECT_EQ(later->bytes().size(), kGood.size()) << "a program may set another one";
}

TEST(Secret, OfNoFile) {
  EXPECT_THAT(secret_in({"RONDE_JOB_SECRET_FILE=/proc/nonexistent/secret"}),
              HasSubstr("RONDE_JOB_SECRET_FILE=/proc/nonexistent/secret could not be opened"));
  EXPECT_THAT(secret_in({"RONDE_JOB_SECRET_FILE=/tmp"}), HasSubstr("is no ordinary file"));
}

TEST(Secret, InBothPlaces) {
  EXPECT_THAT(secret_in({"RONDE_JOB_SECRET=" + kGood, SecretFile(kGood).line()}),
              HasSubstr("are both set: unset one"));
}

}  // namespace
}  // namespace ronde::runtime
