#include "tutti/io/chat_template/published_chat.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/model_file.h"
#include "tutti/io/model_metadata.h"

namespace tutti {
namespace {

using testing::TemporaryFolder;
using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string text_of(const ChatTemplate& chat_template) { return chat_template.render({}).text(); }

TEST(PublishedChat, ReadsATextOrAListOfTemplates) {
  TemporaryFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": "one", "bos_token": "<s>"})");
  EXPECT_EQ(text_of(read_published_chat(folder.path()).choose(true)), "one");
  folder.write("tokenizer_config.json",
               R"({"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]})");
  const PublishedChat chat = read_published_chat(folder / "tokenizer_config.json");
  EXPECT_EQ(text_of(chat.choose(false)), "d");
  EXPECT_EQ(text_of(chat.choose(true)), "t");
  EXPECT_EQ(text_of(chat.choose(true, "default")), "d");
  EXPECT_EQ(message_of([&] { chat.choose(false, "tool_us"); }),
            "unknown chat template 'tool_us'; did you mean 'tool_use'? Known: default, tool_use");
}

TEST(PublishedChat, PrefersTheFileOfTheTemplate) {
  TemporaryFolder folder;
  folder.write("tokenizer_config.json", R"({"chat_template": "old"})");
  folder.write("chat_template.jinja", "new\n");
  folder.write("additional_chat_templates/tool_use.jinja", "tools");
  folder.write("additional_chat_templates/notes.txt", "{% no template");
  const PublishedChat chat = read_published_chat(folder.path());
  EXPECT_EQ(text_of(chat.choose(false)), "new");
  EXPECT_EQ(text_of(chat.choose(true)), "tools");
  EXPECT_EQ(chat.templates.size(), 2U);
}

TEST(PublishedChat, ReadsTokensByName) {
  TemporaryFolder folder;
  folder.write("special_tokens_map.json",
               R"({"eos_token": "old", "pad_token": {"content": "<pad>", "lstrip": false}})");
  folder.write("tokenizer_config.json",
               R"({"add_bos_token": true, "bos_token": {"content": "<s>"}, "eos_token": "</s>", "unk_token": null})");
  EXPECT_EQ(read_published_chat(folder.path()).special_tokens,
            (Pairs{{"eos_token", "</s>"}, {"pad_token", "<pad>"}, {"bos_token", "<s>"}}));
}

TEST(PublishedChat, IsReadFromGguf) {
  ModelMetadata metadata("m.gguf");
  metadata.set("tokenizer.chat_template", "{{ bos_token }}d");
  metadata.set("tokenizer.chat_template.tool_use", "t");
  metadata.set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "<s>", "</s>"});
  metadata.set("tokenizer.ggml.bos_token_id", uint32_t{1});
  metadata.set("tokenizer.ggml.eos_token_id", uint32_t{2});
  const PublishedChat chat = published_chat_of(metadata, "m.gguf");
  EXPECT_EQ(chat.special_tokens, (Pairs{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
  EXPECT_EQ(chat.choose(false).render({.special_tokens = chat.special_tokens}).text(), "<s>d");
  EXPECT_EQ(text_of(chat.choose(true)), "t");
  TemporaryFolder folder;
  metadata.set("general.architecture", "llama");
  const std::string path = folder / "m.gguf";
  create_model_file(path, "gguf", {}, metadata)->commit();
  for (const std::string& place : {path, folder.path()})
    EXPECT_EQ(text_of(read_published_chat(place).choose(true)), "t") << place;
}

TEST(PublishedChat, RefusesDamage) {
  TemporaryFolder folder;
  const PublishedChat none = read_published_chat(folder.path());
  EXPECT_FALSE(none.has_template());
  EXPECT_EQ(message_of([&] { none.choose(false); }),
            "the model has no chat template; complete plain text, or give a template");
  const auto refusal = [&](const char* config) {
    const std::string path = folder.write("tokenizer_config.json", config);
    std::string message = message_of([&] { read_published_chat(folder.path()); });
    return message.starts_with(path) ? message.substr(path.size()) : message;
  };
  EXPECT_EQ(refusal(R"({"chat_template": 7})"),
            ": chat_template: is 7; expected a template, or a list of name and template");
  EXPECT_EQ(refusal(R"({"chat_template": "{{"})"), ": chat_template:1: a tag has no end");
  EXPECT_EQ(refusal(R"({"chat_template": [{"name": "x", "template": "{% no %}"}]})"),
            ": chat_template 'x':1: the tag 'no' is not supported");
  EXPECT_EQ(message_of([] { read_published_chat("/nowhere/at/all"); }),
            "'/nowhere/at/all' is no file or folder of a model");
  ModelMetadata metadata("m.gguf");
  metadata.set("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
  metadata.set("tokenizer.ggml.bos_token_id", uint32_t{5});
  EXPECT_NE(message_of([&] { published_chat_of(metadata, "m.gguf"); }).find("tokenizer.ggml.bos_token_id"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti
