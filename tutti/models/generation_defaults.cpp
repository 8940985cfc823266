#include "tutti/models/generation_defaults.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <unordered_set>
#include <utility>

#include "tutti/io/tokenizer.h"
#include "tutti/models/published_config.h"
#include "tutti/runtime/json_document.h"

namespace tutti::models {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestEndId = std::numeric_limits<int32_t>::max();
constexpr int64_t kLargestCount = int64_t{1} << 40;
constexpr double kLargestNumber = std::numeric_limits<double>::max();
constexpr size_t kLargestDefaults = size_t{1} << 24;

// Names of tokens that end a text, a turn or a message of published models.
constexpr std::string_view kEndNames[] = {
    "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>",    "<|eom_id|>", "<|im_end|>", "<|end|>",          "</s>",
    "<eos>",         "<turn|>",         "<end_of_turn>", "<|return|>", "<|call|>",   "<|tool_response>", "<EOT>"};
constexpr int64_t kControl = 3, kUserDefined = 4;  // types of tokens in GGUF files

// Ids in order, each once.
class Ids {
 public:
  void add(int64_t id) {
    if (seen_.insert(id).second) ids_.push_back(static_cast<int32_t>(id));
  }
  std::vector<int32_t> take() { return std::move(ids_); }

 private:
  std::unordered_set<int64_t> seen_;
  std::vector<int32_t> ids_;
};

// An id or a list of them; -1 stands for none, as some files have it.
std::vector<int32_t> ids_in_json(const std::optional<JsonValue>& found) {
  Ids ids;
  if (!found) return {};
  if (found->is_array()) {
    for (const auto& [_, id] : *found) ids.add(id.whole(0, kLargestEndId));
  } else if (const int64_t id = found->whole(-1, kLargestEndId); id >= 0) {
    ids.add(id);
  }
  return ids.take();
}

// A number of either format, between two limits; the lower one itself is outside where it is that of an open range.
template <class Value>
std::optional<double> setting_in(const std::optional<Value>& found, double least, double most, bool is_open = false) {
  if (!found) return std::nullopt;
  const double number = found->number();
  if (!(number >= least && number <= most) || (is_open && number == least))
    found->fail("is {}, expected {} {}{}", found->shown(), is_open ? "a number above" : "at least", least,
                most == kLargestNumber ? "" : fmt::format(" and at most {}", most));
  return number;
}
template <class Value>
std::optional<int64_t> count_in(const std::optional<Value>& found, int64_t least) {
  return found ? std::optional(found->whole(least, kLargestCount)) : std::nullopt;
}

GenerationDefaults defaults_in(const JsonValue& top) {
  GenerationDefaults d;
  if (const auto samples = top.find_set("do_sample")) d.do_sample = samples->boolean();
  // Files of models that are not sampled say 0 as well as 1.
  d.temperature = setting_in(top.find_set("temperature"), 0, kLargestNumber);
  d.top_k = count_in(top.find_set("top_k"), 0);
  d.top_p = setting_in(top.find_set("top_p"), 0, 1);
  d.min_p = setting_in(top.find_set("min_p"), 0, 1);
  d.repetition_penalty = setting_in(top.find_set("repetition_penalty"), 0, kLargestNumber, true);
  d.max_new_tokens = count_in(top.find_set("max_new_tokens"), 1);
  if (const auto stops = top.find_set("stop_strings")) {
    if (stops->is_text()) d.stop_strings.push_back(stops->string());
    else if (!stops->is_array()) stops->fail("is {}, expected a text or an array of texts", stops->shown());
    else {
      for (const auto& [_, stop] : *stops) d.stop_strings.push_back(stop.string());
    }
    for (const std::string& stop : d.stop_strings) {
      if (stop.empty()) stops->fail("has an empty text, which every text contains; leave it out");
    }
  }
  d.suppress_tokens = ids_in_json(top.find_set("suppress_tokens"));
  d.eos_token_ids = ids_in_json(top.find_set("eos_token_id"));
  return d;
}

std::vector<int32_t> ends_of_gguf(const ModelMetadata& metadata) {
  Ids ends;
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    if (const auto id = metadata.find(fmt::format("tokenizer.ggml.{}", key))) ends.add(id->whole(0, kLargestEndId));
  }
  const auto tokens = metadata.find("tokenizer.ggml.tokens"), types = metadata.find("tokenizer.ggml.token_type");
  if (!tokens) return ends.take();
  const std::vector<std::string>& texts = tokens->texts();
  const std::vector<int64_t> type_of = types ? types->wholes() : std::vector<int64_t>();
  for (size_t id = 0; id < texts.size(); ++id) {
    // A normal token of that name comes out of ordinary text.
    const bool is_marker = id >= type_of.size() || type_of[id] == kControl || type_of[id] == kUserDefined;
    if (is_marker && std::find(std::begin(kEndNames), std::end(kEndNames), texts[id]) != std::end(kEndNames))
      ends.add(static_cast<int64_t>(id));
  }
  return ends.take();
}

GenerationDefaults defaults_of_gguf(const ModelMetadata& metadata) {
  const auto sampling = [&](const char* key) { return metadata.find(fmt::format("general.sampling.{}", key)); };
  GenerationDefaults d;
  d.temperature = setting_in(sampling("temp"), 0, kLargestNumber);
  d.top_k = count_in(sampling("top_k"), 0);
  d.top_p = setting_in(sampling("top_p"), 0, 1);
  d.min_p = setting_in(sampling("min_p"), 0, 1);
  d.repetition_penalty = setting_in(sampling("penalty_repeat"), 0, kLargestNumber, true);
  if (const auto suppressed = metadata.find("tokenizer.ggml.suppress_tokens")) {
    Ids ids;
    for (const int64_t id : suppressed->wholes(0, kLargestEndId)) ids.add(id);
    d.suppress_tokens = ids.take();
  }
  d.eos_token_ids = ends_of_gguf(metadata);
  return d;
}

GenerationDefaults defaults_of_folder(const fs::path& folder) {
  const fs::path generation = folder / "generation_config.json", config = folder / "config.json";
  GenerationDefaults d;
  if (fs::exists(generation))
    d = parse_generation_defaults(read_regular_file(generation.string(), kLargestDefaults), generation.string());
  if (d.eos_token_ids.empty() && fs::exists(config))
    d.eos_token_ids = ids_in_json(PublishedConfig(config).find("eos_token_id"));
  return d;
}

}  // namespace

GenerationDefaults parse_generation_defaults(std::string_view json, const std::string& name) {
  const JsonDocument document(json, {.name = name});
  if (!document.top().is_object()) document.top().fail("is {}, expected an object", document.top().shown());
  return defaults_in(document.top());
}

GenerationDefaults generation_defaults(const ModelFile& file, const Tokenizer& tokenizer) {
  GenerationDefaults d = file.format() == "gguf" ? defaults_of_gguf(file.metadata())
                                                 : defaults_of_folder(fs::absolute(file.path()).parent_path());
  if (d.eos_token_ids.empty() && tokenizer.eos_id()) d.eos_token_ids = {*tokenizer.eos_id()};
  return d;
}

}  // namespace tutti::models
