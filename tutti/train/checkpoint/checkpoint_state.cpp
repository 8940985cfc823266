#include "tutti/train/checkpoint/checkpoint_state.h"

#include <charconv>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/runtime/json_document.h"
#include "tutti/runtime/json_writer.h"
#include "tutti/train/checkpoint/checkpoint_folder.h"

namespace tutti::train {
namespace {

constexpr int kFormat =
    4;  // 1 had no digests, 2 no inputs and no digest of itself, 3 a hash of each tensor without blocks
constexpr std::string_view kSeal = ",\n  \"digest\": \"", kEnd = "\"\n}\n";
constexpr size_t kHexDigits = 16;
constexpr size_t kLargestState = size_t{1} << 30;

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

uint64_t hash_in(const JsonValue& json) {
  const std::string_view text = json.text();
  uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (error != std::errc() || end != text.data() + text.size())
    json.fail("is {}; expected a hash of hexadecimal digits", json.shown());
  return hash;
}

// The text of an object, with its digest as the last member.
std::string sealed(std::string text) {
  text.resize(text.size() - 2);  // without "\n}"
  const uint64_t digest = hash64(text);
  return fmt::format("{}{}{}{}", text, kSeal, hex(digest), kEnd);
}

bool is_sealed(std::string_view text) {
  const size_t tail = kSeal.size() + kHexDigits + kEnd.size();
  if (text.size() < tail) return false;
  const std::string_view body = text.substr(0, text.size() - tail);
  return text.substr(body.size()) == fmt::format("{}{}{}", kSeal, hex(hash64(body)), kEnd);
}

void write_id(JsonWriter& json, std::string_view name, std::optional<int32_t> id) {
  json.key(name);
  if (id) json.value(*id);
  else json.value(nullptr);
}
std::optional<int32_t> id_in(const JsonValue& json) {
  return json.is_null() ? std::nullopt : std::optional(static_cast<int32_t>(json.whole(0, INT32_MAX)));
}
int64_t count_in(const JsonValue& json) { return json.whole(0, INT64_MAX); }

void write_tokenizer(JsonWriter& json, const TokenizerInput& t) {
  json.key("tokenizer").object().member("spec", t.spec).member("name", t.name);
  write_id(json, "bos", t.bos);
  write_id(json, "eos", t.eos);
  json.member("fingerprint", hex(t.fingerprint)).end();
}

TokenizerInput tokenizer_in(const JsonValue& json) {
  return {json.at("spec").string(), json.at("name").string(), id_in(json.at("bos")), id_in(json.at("eos")),
          hash_in(json.at("fingerprint"))};
}

void write_corpus(JsonWriter& json, const CorpusInput& c) {
  json.key("corpus")
      .object()
      .member("documents", c.documents)
      .member("tokens", c.tokens)
      .member("hash", hex(c.hash))
      .key("files")
      .array();
  for (const FileFingerprint& file : c.files)
    json.object().member("path", file.path).member("size", file.nbytes).member("hash", hex(file.hash)).end();
  json.end().end();
}

CorpusInput corpus_in(const JsonValue& json) {
  CorpusInput corpus{count_in(json.at("documents")), count_in(json.at("tokens")), hash_in(json.at("hash")), {}};
  for (const auto& [_, file] : json.at("files"))
    corpus.files.push_back({file.at("path").string(), count_in(file.at("size")), hash_in(file.at("hash"))});
  return corpus;
}

void write_clicks(JsonWriter& json, const ClickInput& c, const std::vector<int64_t>& position) {
  json.key("clicks").object().key("files").array();
  for (const ClickInput::File& file : c.files)
    json.object().member("path", file.path).member("number", file.number).end();
  json.end().key("position").array();
  for (const int64_t number : position) json.value(number);
  json.end().end();
}

ClickInput clicks_in(const JsonValue& json) {
  ClickInput clicks;
  for (const auto& [_, file] : json.at("files"))
    clicks.files.push_back({file.at("path").string(), count_in(file.at("number"))});
  return clicks;
}

std::vector<int64_t> position_in(const JsonValue& json) {
  std::vector<int64_t> position;
  for (const auto& [_, number] : json.at("position")) position.push_back(count_in(number));
  return position;
}

void write_changes(JsonWriter& json, const std::vector<InputChange>& changes) {
  json.key("changes").array();
  for (const InputChange& c : changes)
    json.object().member("step", c.step).member("next_row", c.next_row).member("what", c.what).end();
  json.end();
}

std::vector<InputChange> changes_in(const JsonValue& json) {
  std::vector<InputChange> changes;
  for (const auto& [_, c] : json)
    changes.push_back({count_in(c.at("step")), count_in(c.at("next_row")), c.at("what").string()});
  return changes;
}

void write_texts(JsonWriter& json, std::string_view name, const std::map<std::string, std::string>& texts) {
  json.key(name).object();
  for (const auto& [key, text] : texts) json.member(key, text);
  json.end();
}

std::map<std::string, std::string> texts_in(const JsonValue& json) {
  std::map<std::string, std::string> texts;
  for (const auto& [key, value] : json) texts.emplace(key, value.string());
  return texts;
}

}  // namespace

std::string state_json_of(const SavedState& state) {
  const TrainState& s = state.train;
  JsonWriter json(2);
  json.object().member("format", kFormat).member("numerics_version", s.inputs.numerics_version).member("step", s.step);
  json.member(s.inputs.clicks ? "samples_seen" : "tokens_seen", s.items_seen)
      .member("next_row", s.next_row)
      .member("optimizer_steps", s.optimizer_steps)
      .member("seed", s.seed);
  write_texts(json, "settings", s.inputs.settings);
  if (s.inputs.clicks) {
    write_clicks(json, *s.inputs.clicks, s.position);
  } else {
    write_tokenizer(json, s.inputs.tokenizer);
    write_corpus(json, s.inputs.corpus);
  }
  write_changes(json, s.inputs.changes);
  write_texts(json, "digests", state.digests);
  return sealed(json.end().take());
}

SavedState parse_state_json(std::string_view text, std::string_view where) {
  const JsonDocument document(text, {.name = std::string(where)});
  const JsonValue json = document.top();
  const int64_t format = json.at("format").whole();
  TUTTI_CHECK(format == kFormat, "{} has format {}; this version reads {}", where, format, kFormat);
  TUTTI_CHECK_ENV(
      is_sealed(text),
      "{} is damaged: its bytes are not those that were saved; remove the folder to go on from the one before", where);
  const std::optional<JsonValue> clicks = json.find("clicks");
  SavedState saved{
      .train = {.step = count_in(json.at("step")),
                .items_seen = count_in(json.at(clicks ? "samples_seen" : "tokens_seen")),
                .next_row = count_in(json.at("next_row")),
                .optimizer_steps = count_in(json.at("optimizer_steps")),
                .seed = json.at("seed").natural(),
                .inputs = {.numerics_version = static_cast<int>(json.at("numerics_version").whole(1, INT32_MAX)),
                           .settings = texts_in(json.at("settings")),
                           .changes = changes_in(json.at("changes"))}},
      .digests = texts_in(json.at("digests"))};
  if (clicks) {
    saved.train.inputs.clicks = clicks_in(*clicks);
    saved.train.position = position_in(*clicks);
  } else {
    saved.train.inputs.tokenizer = tokenizer_in(json.at("tokenizer"));
    saved.train.inputs.corpus = corpus_in(json.at("corpus"));
  }
  return saved;
}

SavedState read_state(const std::filesystem::path& step_folder) {
  const std::filesystem::path path = step_folder / kStateFile;
  SavedState state = parse_state_json(read_regular_file(path.string(), kLargestState), path.string());
  const int64_t named = step_of(step_folder).value_or(state.train.step);
  TUTTI_CHECK_ENV(named == state.train.step,
                  "{} is that of step {}, the folder is named for step {}; put back the folder as it was saved",
                  path.string(), state.train.step, named);
  return state;
}

}  // namespace tutti::train
