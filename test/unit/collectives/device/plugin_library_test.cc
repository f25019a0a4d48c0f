// SPDX-License-Identifier: Apache-2.0
// What is taken for a plug-in, and what is refused, with which words.
#include "collectives/device/plugin_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace ronde::collectives {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Where the build put the bad plug-ins.
std::string bad_plugin(const std::string& kind) {
  return (std::filesystem::path(RONDE_TEST_PLUGINS) / ("libbad_" + kind + ".so")).string();
}

std::string refusal(const std::string& path) {
  const auto library = PluginLibrary::load(path);
  EXPECT_FALSE(library.ok()) << path << " was taken for a plug-in";
  const std::string text = library.ok() ? "" : library.status().message();
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  return text;
}

TEST(PluginPlace, IsBesideTheLibraryOrWhereTheSettingSays) {
  EXPECT_EQ(plugin_place("", "/opt/ronde/lib"),
            (PluginPlace{"/opt/ronde/lib/libronde_cuda.so", false}));
  EXPECT_EQ(plugin_place("/some/libother.so", "/opt/ronde/lib"),
            (PluginPlace{"/some/libother.so", true}));
  const std::string folder = std::filesystem::temp_directory_path().string();
  EXPECT_EQ(plugin_place(folder, "/opt/ronde/lib"),
            (PluginPlace{(std::filesystem::path(folder) / "libronde_cuda.so").string(), true}));
  EXPECT_EQ(plugin_place("off", "/opt/ronde/lib"), (PluginPlace{"", true}));
  EXPECT_EQ(plugin_place("", ""), (PluginPlace{"", false})) << "the current folder is no place";
}

TEST(PluginLibrary, RefusesWhatCannotBeLoaded) {
  EXPECT_THAT(refusal("/nowhere/libnothing.so"),
              AllOf(HasSubstr("/nowhere/libnothing.so"), HasSubstr("cannot be loaded"),
                    HasSubstr("No such file")));
}

TEST(PluginLibrary, RefusesALibraryThatIsNoPlugin) {
  EXPECT_THAT(refusal(bad_plugin("entry")), HasSubstr("it has no ronde_plugin_entry"));
}

TEST(PluginLibrary, RefusesAnotherVersionByName) {
  EXPECT_THAT(refusal(bad_plugin("version")),
              AllOf(HasSubstr("'future' is of version 7 of the interface, and this Ronde of 1"),
                    HasSubstr("install the plug-in that came with this libronde.so")));
}

TEST(PluginLibrary, RefusesATableThatIsTooShort) {
  EXPECT_THAT(refusal(bad_plugin("table")), HasSubstr("has 16 bytes of "));
}

TEST(PluginLibrary, RefusesATableWithoutAFunction) {
  EXPECT_THAT(refusal(bad_plugin("function")), HasSubstr("'bad' has no function classify"));
}

}  // namespace
}  // namespace ronde::collectives
