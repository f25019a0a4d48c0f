// SPDX-License-Identifier: Apache-2.0
// A file of results is replaced as a whole or not at all.
#include "examples/perf/report/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "examples/perf/options/options.h"

namespace ronde::perf {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  Files() {
    std::string name = (fs::temp_directory_path() / "ronde-files-XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~Files() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream in(folder_ / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& name, const std::string& content) const {
    std::ofstream(folder_ / name) << content;
  }
  [[nodiscard]] std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  fs::path folder_;
};

TEST_F(Files, KeepWhatTheyHadUntilTheEnd) {
  put("a", "old");
  const OutputFile file(path("a"));
  EXPECT_EQ(text("a"), "old");
  EXPECT_EQ(entries(), 1) << "an aborted run leaves nothing behind";
  file.write([this](std::ostream& out) {
    out << "new" << std::flush;
    EXPECT_EQ(text("a"), "old") << "half of the new one is nothing";
  });
  EXPECT_EQ(text("a"), "new");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, KeepWhatTheyHadWhenWritingFails) {
  put("a", "old");
  const OutputFile file(path("a"));
  const auto fail = [](std::ostream& out) { out.setstate(std::ios::badbit); };
  EXPECT_THROW(file.write(fail), std::runtime_error);
  EXPECT_EQ(text("a"), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(Files, AreWrittenThroughLinks) {
  put("a", "old");
  fs::create_symlink(path("a"), path("link"));
  OutputFile(path("link")).write([](std::ostream& out) { out << "new"; });
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(text("a"), "new");
}

TEST_F(Files, MayBeDevices) {
  OutputFile("/dev/null").write([](std::ostream& out) { out << "gone"; });
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_THROW(OutputFile("/dev/full").write([](std::ostream& out) { out << "x"; }),
               std::runtime_error);
}

TEST_F(Files, ThatCannotBeWrittenAreRefusedAtTheStart) {
  EXPECT_THROW(OutputFile(path("none/a")), UsageError);
  EXPECT_THROW(OutputFile(path(".")), UsageError);
}

}  // namespace
}  // namespace ronde::perf
