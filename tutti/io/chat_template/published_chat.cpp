#include "tutti/io/chat_template/published_chat.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tutti/core/error.h"
#include "tutti/io/gguf_header.h"
#include "tutti/io/model_file.h"
#include "tutti/io/model_metadata.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr size_t kLargestJson = size_t{1} << 26;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool begins_as_gguf(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string head(io::kGgufMagic.size(), '\0');
  return file.read(head.data(), std::ssize(head)) && head == io::kGgufMagic;
}

template <class Value>
void put(std::vector<std::pair<std::string, Value>>& pairs, const std::string& key, Value value) {
  for (auto& [name, old] : pairs) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  pairs.emplace_back(key, std::move(value));
}

void put_template(PublishedChat& chat, const std::string& name, std::string_view source, const std::string& place) {
  put(chat.templates, name, ChatTemplate::parse(source, place));
}

// A token is its text, or an object with its content.
void read_tokens(const JsonValue& top, PublishedChat& chat) {
  for (const auto& [key, value] : top) {
    if (!key.ends_with("_token")) continue;
    if (value.is_text()) put(chat.special_tokens, std::string(key), value.string());
    else if (value.is_object()) put(chat.special_tokens, std::string(key), value.at("content").string());
  }
}

void read_config(const fs::path& path, PublishedChat& chat) {
  const auto document = JsonDocument::read(path.string(), {.nbytes = kLargestJson});
  const JsonValue top = document.top();
  read_tokens(top, chat);
  const auto found = top.find_set("chat_template");
  if (!found) return;
  if (found->is_text()) return put_template(chat, "default", found->text(), path.string() + ": chat_template");
  if (!found->is_array()) found->fail("is {}; expected a template, or a list of name and template", found->shown());
  for (const auto& [key, entry] : *found) {
    const std::string name = entry.at("name").string();
    put_template(chat, name, entry.at("template").text(), path.string() + ": chat_template '" + name + "'");
  }
}

void read_template(const fs::path& path, const std::string& name, PublishedChat& chat) {
  put_template(chat, name, read_regular_file(path.string(), ChatTemplateLimits{}.source_nbytes), path.string());
}

PublishedChat read_folder(const fs::path& folder) {
  PublishedChat chat;
  const fs::path tokens = folder / "special_tokens_map.json", config = folder / "tokenizer_config.json";
  if (is_file(tokens)) {
    const auto document = JsonDocument::read(tokens.string(), {.nbytes = kLargestJson});
    read_tokens(document.top(), chat);
  }
  if (is_file(config)) read_config(config, chat);
  if (is_file(folder / "chat_template.jinja")) read_template(folder / "chat_template.jinja", "default", chat);
  std::vector<fs::path> more;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder / "additional_chat_templates", error))
    if (entry.path().extension() == ".jinja" && is_file(entry.path())) more.push_back(entry.path());
  std::sort(more.begin(), more.end());
  for (const fs::path& path : more) read_template(path, path.stem().string(), chat);
  return chat;
}

}  // namespace

const ChatTemplate& PublishedChat::choose(bool has_tools, std::string_view name) const {
  const auto find = [&](std::string_view wanted) -> const ChatTemplate* {
    for (const auto& [key, chat_template] : templates)
      if (key == wanted) return &chat_template;
    return nullptr;
  };
  const ChatTemplate* chosen = nullptr;
  if (!name.empty()) chosen = find(name);
  else if (has_tools) chosen = find("tool_use");
  if (chosen == nullptr && name.empty()) chosen = find("default");
  if (chosen != nullptr) return *chosen;
  TUTTI_CHECK(has_template(), "the model has no chat template; complete plain text, or give a template");
  std::vector<std::string> names;
  for (const auto& entry : templates) names.push_back(entry.first);
  throw UsageError(unknown_name_message("chat template", name.empty() ? "default" : name, names));
}

PublishedChat published_chat_of(const ModelMetadata& metadata, const std::string& path) {
  PublishedChat chat;
  constexpr std::string_view kTemplate = "tokenizer.chat_template";
  for (const auto& [key, value] : metadata.entries()) {
    if (key == kTemplate) put_template(chat, "default", metadata.at(key).text(), path + ": " + key);
    else if (key.starts_with(std::string(kTemplate) + "."))
      put_template(chat, key.substr(kTemplate.size() + 1), metadata.at(key).text(), path + ": " + key);
  }
  const auto tokens = metadata.find("tokenizer.ggml.tokens");
  if (!tokens) return chat;
  static constexpr std::pair<const char*, const char*> kNames[] = {
      {"bos", "bos_token"},     {"eos", "eos_token"}, {"unknown", "unk_token"}, {"seperator", "sep_token"},
      {"padding", "pad_token"}, {"cls", "cls_token"}, {"mask", "mask_token"}};
  for (const auto& [key, name] : kNames) {
    const auto id = metadata.find(fmt::format("tokenizer.ggml.{}_token_id", key));
    if (!id) continue;
    const int64_t last = std::ssize(tokens->texts()) - 1;
    put(chat.special_tokens, name, tokens->texts()[static_cast<size_t>(id->whole(0, last))]);
  }
  return chat;
}

PublishedChat read_published_chat(const std::string& path) {
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  TUTTI_CHECK(is_folder || is_file(path), "'{}' is no file or folder of a model", path);
  const fs::path folder = is_folder ? fs::path(path) : fs::path(path).parent_path();
  const bool has_files = is_file(folder / "tokenizer_config.json") || is_file(folder / "chat_template.jinja");
  if (is_folder ? !has_files && holds_model(path) : begins_as_gguf(path)) {
    const ModelFile file(path);
    if (file.format() == "gguf") return published_chat_of(file.metadata(), file.path());
  }
  return read_folder(folder);
}

}  // namespace tutti
