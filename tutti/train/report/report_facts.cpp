#include "tutti/train/report/report_facts.h"

#include "tutti/runtime/json_document.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::train {
namespace {

constexpr size_t kLargestFacts = size_t{64} << 20;
constexpr int64_t kMostRanks = 1 << 20;

using Categories = std::array<int64_t, kNumMemoryCategories>;

void write(JsonWriter& json, const char* key, const Categories& bytes) {
  json.key(key).array();
  for (const int64_t b : bytes) json.value(b);
  json.end();
}

Categories categories_of(const JsonValue& value) {
  Categories bytes{};
  if (value.size() != bytes.size())
    value.fail("{} categories of memory, where this version has {}", value.size(), bytes.size());
  size_t at = 0;
  for (const auto entry : value) bytes[at++] = entry.value.whole(0);
  return bytes;
}

StepTimeline timeline_of(const JsonValue& value) {
  StepTimeline timeline{.step = value.at("step").whole(1),
                        .ranks = value.at("ranks").whole(1, kMostRanks),
                        .dropped = value.at("dropped").whole(0)};
  for (const auto entry : value.at("spans")) {
    const JsonValue& span = entry.value;
    timeline.spans.push_back({.rank = span.at("rank").whole(0, timeline.ranks - 1),
                              .kind = static_cast<StepSpanKind>(span.at("kind").whole(0, kNumStepSpanKinds - 1)),
                              .begin_ms = span.at("begin_ms").number(),
                              .end_ms = span.at("end_ms").number()});
  }
  return timeline;
}

}  // namespace

std::string to_json(const ReportFacts& facts) {
  JsonWriter json;
  json.object().key("memory").array();
  for (const auto& [name, text] : facts.memory) json.object().member("name", name).member("text", text).end();
  json.end().key("ranks").array();
  for (const RankMemoryBars& rank : facts.ranks) {
    json.object();
    write(json, "planned", rank.planned);
    write(json, "measured", rank.measured);
    json.end();
  }
  json.end();
  if (facts.timeline) {
    json.key("timeline")
        .object()
        .member("step", facts.timeline->step)
        .member("ranks", facts.timeline->ranks)
        .member("dropped", facts.timeline->dropped)
        .key("spans")
        .array();
    for (const StepSpan& span : facts.timeline->spans)
      json.object()
          .member("rank", span.rank)
          .member("kind", static_cast<int64_t>(span.kind))
          .member("begin_ms", span.begin_ms)
          .member("end_ms", span.end_ms)
          .end();
    json.end().end();
  }
  json.key("samples").array();
  for (const ReportSample& sample : facts.samples)
    json.object().member("step", sample.step).member("text", sample.text).end();
  return json.end().end().take();
}

ReportFacts parse_report_facts(std::string_view text, const std::string& where) {
  const JsonDocument document(text, {.name = where}, {.nbytes = kLargestFacts});
  ReportFacts facts;
  for (const auto entry : document.top().at("memory"))
    facts.memory.emplace_back(entry.value.at("name").string(), entry.value.at("text").string());
  for (const auto entry : document.top().at("ranks"))
    facts.ranks.push_back(
        {.planned = categories_of(entry.value.at("planned")), .measured = categories_of(entry.value.at("measured"))});
  if (const auto timeline = document.top().find("timeline")) facts.timeline = timeline_of(*timeline);
  for (const auto entry : document.top().at("samples"))
    facts.samples.push_back({.step = entry.value.at("step").whole(0), .text = entry.value.at("text").string()});
  return facts;
}

ReportFacts read_report_facts(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return {};
  return parse_report_facts(read_regular_file(path.string(), kLargestFacts), path.string());
}

}  // namespace tutti::train
