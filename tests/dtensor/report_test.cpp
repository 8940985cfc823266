// The page of all rules is what the program prints.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tutti/dist/rule_report.h"

namespace tutti::dist {
namespace {

TEST(RuleReport, IsThePageInTheDocumentation) {
  std::ifstream file(TUTTI_SOURCE_DIR "/docs/sharding_report.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_TRUE(page.str() == rule_report()) << "write it anew: tutti explain rules > docs/sharding_report.md";
}

}  // namespace
}  // namespace tutti::dist
