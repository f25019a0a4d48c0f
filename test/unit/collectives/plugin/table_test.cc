// SPDX-License-Identifier: Apache-2.0
// Where plug-ins are looked for. What is refused is tested with the tables themselves: of a device,
// and of a transport.
#include "collectives/plugin/table.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <span>

namespace ronde::collectives {
namespace {

TEST(PluginTable, KnowsWhereItsOwnCodeLies) {
  EXPECT_TRUE(std::filesystem::is_directory(own_library_folder()));
}

TEST(PluginTable, NamesTheFirstFunctionThatIsMissing) {
  const std::array<PluginFunction, 3> functions{{{"open", true}, {"send", false}, {"test", false}}};
  EXPECT_EQ(check_plugin_functions("lib.so", "some", functions).message(),
            "the plug-in lib.so is not used: 'some' has no function send");
  EXPECT_TRUE(check_plugin_functions("lib.so", "some", std::span(functions).first(1)).ok());
}

}  // namespace
}  // namespace ronde::collectives
