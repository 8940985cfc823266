#include "tutti/train/config/config_docs.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tutti/train/config/config_fields.h"

namespace tutti::train {
namespace {

TEST(ConfigDocs, HelpNamesEveryFlagAndVariable) {
  const std::string help = config_help();
  for (const Field& field : config_fields()) {
    EXPECT_NE(help.find("--" + field.name() + "="), std::string::npos) << field.name();
    EXPECT_NE(help.find(field.variable()), std::string::npos) << field.name();
  }
}

TEST(ConfigDocs, HelpShowsDefaultUnitAndLegalValues) {
  const std::string help = config_help();
  EXPECT_NE(help.find("--training.steps=1000 [steps]\n"), std::string::npos) << help;
  EXPECT_NE(help.find("one of: linear, sqrt, cosine"), std::string::npos) << help;
}

// TUTTI_RENEW_DOCS=1 in the environment writes the page anew.
TEST(ConfigDocs, ThePageIsUpToDate) {
  const std::string path = TUTTI_SOURCE_DIR "/docs/config.md";
  if (std::getenv("TUTTI_RENEW_DOCS") != nullptr) std::ofstream(path) << config_markdown();
  std::ifstream file(path);
  const std::string page(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(page, config_markdown());
}

}  // namespace
}  // namespace tutti::train
