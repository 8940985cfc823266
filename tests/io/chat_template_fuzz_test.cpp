// Damaged templates render or raise UsageError, whatever the damage; so do templates that are put together at random.
#include <gtest/gtest.h>

#include "tests/io/support/chat_inputs.h"
#include "tests/io/support/sample_text.h"
#include "tests/support/fuzz_rounds.h"
#include "tutti/core/error.h"

namespace tutti {
namespace {

using testing::FuzzRounds;
using testing::mutated;

constexpr uint32_t kSeed = 20261128;
// Small bounds, so that hostile mixtures end soon.
constexpr ChatTemplateLimits kLimits{.steps = 20000, .text_nbytes = 20000, .values = 2000};

std::vector<std::string> sources() {
  const auto document = JsonDocument::read(TUTTI_SOURCE_DIR "/tests/io/chat_templates/cases.json");
  std::vector<std::string> sources;
  for (const auto& [key, row] : document.top().at("cases")) sources.push_back(testing::json_item(row, 0).string());
  return sources;
}

class ChatTemplateFuzz : public ::testing::Test {
 protected:
  // Whether the template renders.
  bool renders(const std::string& source) {
    try {
      const RenderedChat chat = ChatTemplate::parse(source, "damaged", kLimits).render(input_);
      EXPECT_LE(chat.text().size(), kLimits.text_nbytes);
      return true;
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()).find("damaged"), 0U) << error.what();
      return false;
    }
  }

  const std::vector<std::string> sources_ = sources();
  const JsonDocument document_ = JsonDocument::read(TUTTI_SOURCE_DIR "/tests/io/chat_templates/cases.json");
  const ChatInput input_ = testing::chat_input(document_.top().at("variables"));
  std::mt19937 random_{kSeed};
};

TEST_F(ChatTemplateFuzz, DamagedTemplatesRenderOrRaise) {
  int64_t rendered = 0, raised = 0;
  for (FuzzRounds rounds(3000); rounds.go_on();)
    (renders(mutated(sources_[random_() % sources_.size()], random_)) ? rendered : raised) += 1;
  EXPECT_GT(rendered, 100);
  EXPECT_GT(raised, 100);
}

TEST_F(ChatTemplateFuzz, TemplatesInsideEachOtherRenderOrRaise) {
  for (FuzzRounds rounds(1000); rounds.go_on();) {
    std::string whole = sources_[random_() % sources_.size()];
    for (int j = 0; j < 3; ++j) whole.insert(random_() % (whole.size() + 1), sources_[random_() % sources_.size()]);
    renders(whole);
  }
}

TEST_F(ChatTemplateFuzz, RandomTokensRenderOrRaise) {
  static constexpr const char* kTokens[] = {"{{",       "}}",         "{%",
                                            "%}",       "{#",         "#}",
                                            "-",        "+",          "set ",
                                            "x",        "=",          "for ",
                                            "in ",      "if ",        "(",
                                            ")",        "[",          "]",
                                            "{",        "}",          "|",
                                            "join",     "map",        "trim",
                                            "tojson",   ".",          ",",
                                            ":",        "'a'",        "1",
                                            "~",        "list",       " is ",
                                            "not ",     "none",       "loop",
                                            "text",     "mapping",    "upper",
                                            "macro",    "m",          "endmacro",
                                            "endfor",   "endif",      "else",
                                            "messages", "ns",         "namespace",
                                            "range",    "9999",       "*",
                                            "//",       "%",          "==",
                                            "<",        "generation", "endgeneration",
                                            "sort",     "\n",         " ",
                                            "true",     "attribute",  "1.5",
                                            "nope",     "break",      "split",
                                            "format",   "raw",        "endraw",
                                            "é"};
  for (FuzzRounds rounds(5000); rounds.go_on();) {
    std::string source = random_() % 2 == 0 ? "{{" : "{%";
    for (uint32_t tokens = random_() % 30; tokens > 0; --tokens) source += kTokens[random_() % std::size(kTokens)];
    renders(source + (random_() % 2 == 0 ? "}}" : "%}"));
  }
}

}  // namespace
}  // namespace tutti
