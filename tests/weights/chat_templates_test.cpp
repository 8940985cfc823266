// The chat templates of 71 published models against transformers; tests/io/chat_templates/make_cases.py made the
// digests.
#include <gtest/gtest.h>

#include "tests/io/support/chat_inputs.h"
#include "tests/support/temporary_folder.h"
#include "tests/weights/support/published_models.h"
#include "tutti/core/blake2b.h"
#include "tutti/core/error.h"
#include "tutti/io/model_file.h"

namespace tutti {
namespace {

constexpr const char* kTemplates = "chat-templates";
constexpr const char* kSmolLm2 = "smollm2-135m-instruct";
const std::string kFolder = TUTTI_SOURCE_DIR "/tests/io/chat_templates/";

std::string digest_of(const std::string& text) {
  Blake2b hash(8);
  hash.add(text);
  std::string digest = fmt::format("{} ", text.size());
  for (const char byte : hash.finish()) digest += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return digest;
}

// The names of the chats that the template renders otherwise than transformers.
std::vector<std::string> differences(const std::string& source, const std::string& name, const JsonValue& digests) {
  const auto chats = JsonDocument::read(kFolder + "chats.json");
  const ChatTemplate chat_template = ChatTemplate::parse(source, name);
  std::vector<std::string> different;
  for (int i = 0; i < static_cast<int>(digests.size()); ++i) {
    const JsonValue chat = testing::json_item(chats.top(), i);
    std::string found;
    try {
      found = digest_of(chat_template.render(testing::chat_input(testing::json_item(chat, 1))).text());
    } catch (const UsageError&) {
    }
    if (found != testing::json_item(digests, i).text()) different.push_back(testing::json_item(chat, 0).string());
  }
  return different;
}

TEST(PublishedChatTemplates, RenderAsInTransformers) {
  TUTTI_NEEDS_PUBLISHED(testing::published_file(kTemplates, "GLM-4.6.jinja"), kTemplates);
  const auto published = JsonDocument::read(kFolder + "published.json");
  int count = 0;
  for (const auto& [name, digests] : published.top()) {
    if (name == kSmolLm2) continue;
    const std::string path = testing::published_file(kTemplates, std::string(name));
    EXPECT_EQ(differences(testing::read_whole_file(path), std::string(name), digests), std::vector<std::string>())
        << name;
    ++count;
  }
  EXPECT_EQ(count, 70);
}

TEST(PublishedChatTemplates, OfSmolLm2RendersAsInTransformers) {
  const std::string path = testing::published_file(kSmolLm2, "SmolLM2-135M-Instruct.Q4_1.gguf");
  TUTTI_NEEDS_PUBLISHED(path, kSmolLm2);
  const ModelFile file(path);
  const std::string source(file.metadata().at("tokenizer.chat_template").text());
  const auto published = JsonDocument::read(kFolder + "published.json");
  EXPECT_EQ(differences(source, kSmolLm2, published.top().at(kSmolLm2)), std::vector<std::string>());
}

}  // namespace
}  // namespace tutti
