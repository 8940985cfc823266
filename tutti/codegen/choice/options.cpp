#include "tutti/codegen/choice/options.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::codegen::choice {
namespace {

template <class T>
std::optional<T> number(std::string_view text, T smallest) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < smallest) return std::nullopt;
  return value;
}

// One option: parsing, printing and the list in error messages are loops over these rows.
struct Row {
  const char* name;
  const char* legal;
  bool (*read)(ChoiceOptions&, std::string_view);  // false: not a legal value
  std::string (*write)(const ChoiceOptions&);
};

template <auto Member, int64_t Smallest>
Row whole_number(const char* name, const char* legal) {
  return {name, legal,
          [](ChoiceOptions& options, std::string_view text) {
            auto& member = options.*Member;
            using T = std::remove_reference_t<decltype(member)>;
            const std::optional<T> value = number<T>(text, static_cast<T>(Smallest));
            if (value) member = *value;
            return value.has_value();
          },
          [](const ChoiceOptions& options) { return fmt::format("{}", options.*Member); }};
}

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {"mode", "heuristic or measure",
       [](ChoiceOptions& options, std::string_view text) {
         options.mode = text == "measure" ? ChoiceMode::measure : ChoiceMode::heuristic;
         return text == "measure" || text == "heuristic";
       },
       [](const ChoiceOptions& options) {
         return std::string(options.mode == ChoiceMode::measure ? "measure" : "heuristic");
       }},
      {"deterministic", "true or false",
       [](ChoiceOptions& options, std::string_view text) {
         options.deterministic = text == "true";
         return text == "true" || text == "false";
       },
       [](const ChoiceOptions& options) { return std::string(options.deterministic ? "true" : "false"); }},
      {"max_candidates", "a whole number from 1, or all",
       [](ChoiceOptions& options, std::string_view text) {
         const std::optional<int64_t> count = number<int64_t>(text, 1);
         if (count) options.max_candidates = CandidateLimit::at_most(*count);
         if (text == "all") options.max_candidates = CandidateLimit::all();
         return count || text == "all";
       },
       [](const ChoiceOptions& options) { return options.max_candidates.text(); }},
      whole_number<&ChoiceOptions::samples, 1>("samples", "a whole number from 1"),
      whole_number<&ChoiceOptions::budget_ms, 1>("budget_ms", "milliseconds, a whole number from 1"),
      whole_number<&ChoiceOptions::memo_entries, 1>("memo_entries", "a whole number from 1"),
      whole_number<&ChoiceOptions::seed, 0>("seed", "a whole number from 0"),
  };
  return table;
}

const Row& row_of(std::string_view name, std::string_view where) {
  std::vector<std::string> known;
  for (const Row& row : rows()) {
    if (row.name == name) return row;
    known.emplace_back(row.name);
  }
  throw UsageError(fmt::format("{}: {}", where, unknown_name_message("option of a choice", name, known)));
}

}  // namespace

CandidateLimit CandidateLimit::at_most(int64_t count) {
  TUTTI_CHECK(count >= 1, "CandidateLimit::at_most({}): expected 1 or more; CandidateLimit::all() is no limit", count);
  return {Kind::count, count};
}

std::string CandidateLimit::text() const { return kind_ == Kind::all ? "all" : fmt::format("{}", count_); }

ChoiceOptions parse_choice_options(std::string_view text, std::string_view where) {
  ChoiceOptions options;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    const size_t equals = item.find('=');
    const bool word = equals == std::string_view::npos;
    const Row& row = row_of(word ? "mode" : item.substr(0, equals), where);
    const std::string_view value = word ? item : item.substr(equals + 1);
    TUTTI_CHECK(row.read(options, value), "{}: {}={}: expected {}", where, row.name, value, row.legal);
  }
  return options;
}

std::string to_text(const ChoiceOptions& options) {
  std::string text;
  for (const Row& row : rows()) text += fmt::format("{}{}={}", text.empty() ? "" : ",", row.name, row.write(options));
  return text;
}

}  // namespace tutti::codegen::choice
