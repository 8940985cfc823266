#include "tutti/symm/tuning.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <map>
#include <sstream>

#include "tutti/core/error.h"
#include "tutti/runtime/json_document.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::comm::symm {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;
constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// For each op what there is, the one for the largest sizes last.
const std::map<std::string, std::vector<std::string>, std::less<>>& known() {
  static const std::map<std::string, std::vector<std::string>, std::less<>> table{
      {"all_reduce", {"one_shot", "two_shot"}},
      {"all_gather_matmul", {"gather_first", "chunked"}},
  };
  return table;
}

std::vector<std::string> names_of_ops() {
  std::vector<std::string> names;
  for (const auto& [op, algorithms] : known()) names.push_back(op);
  return names;
}

int64_t number(const std::string& word, int line) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  TUTTI_CHECK(error == std::errc() && end == word.data() + word.size() && value >= 0,
              "symmetric memory tuning, line {}: '{}' is no whole number", line, word);
  return value;
}

}  // namespace

std::vector<std::string> algorithms_of(std::string_view op) {
  const auto found = known().find(op);
  if (found == known().end()) throw UsageError(unknown_name_message("symmetric memory op", op, names_of_ops()));
  return found->second;
}

TuningTable::TuningTable(std::vector<TuningRow> rows) : rows_(std::move(rows)) {
  for (const TuningRow& row : rows_) {
    const std::vector<std::string> algorithms = algorithms_of(row.op);
    if (std::find(algorithms.begin(), algorithms.end(), row.algorithm) == algorithms.end()) {
      throw UsageError(unknown_name_message("algorithm of " + row.op, row.algorithm, algorithms));
    }
  }
}

const TuningTable& TuningTable::defaults() {
  // One pass over all buffers costs a barrier less; two passes read each element once per rank instead of W times.
  static const TuningTable table({
      {"all_reduce", 2, 32 << 10, "one_shot"},
      {"all_reduce", 0, 4 << 10, "one_shot"},
      {"all_reduce", 0, kNoLimit, "two_shot"},
      {"all_gather_matmul", 0, 64 << 10, "gather_first"},
      {"all_gather_matmul", 0, kNoLimit, "chunked"},
  });
  return table;
}

TuningTable TuningTable::parse(std::string_view text) {
  std::vector<TuningRow> rows;
  std::istringstream lines{std::string(text)};
  int line_number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++line_number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::vector<std::string> fields;
    for (std::string word; words >> word;) fields.push_back(word);
    if (fields.empty()) continue;
    TUTTI_CHECK(fields.size() == 4, "symmetric memory tuning, line {}: '{}'; expected: op ranks max_bytes algorithm",
                line_number, line);
    rows.push_back({.op = fields[0],
                    .ranks = static_cast<int>(number(fields[1], line_number)),
                    .max_bytes = fields[2] == "inf" ? kNoLimit : number(fields[2], line_number),
                    .algorithm = fields[3]});
  }
  return TuningTable(std::move(rows));
}

std::string TuningTable::to_text() const {
  std::string text = "# op ranks max_bytes algorithm\n";
  for (const TuningRow& row : rows_) {
    text += fmt::format("{} {} {} {}\n", row.op, row.ranks,
                        row.max_bytes == kNoLimit ? "inf" : std::to_string(row.max_bytes), row.algorithm);
  }
  return text;
}

const std::string& TuningTable::choose(std::string_view op, int ranks, int64_t nbytes) const {
  for (const TuningRow& row : rows_) {
    if (row.op == op && (row.ranks == 0 || row.ranks == ranks) && nbytes <= row.max_bytes) return row.algorithm;
  }
  return known().at(std::string(op)).back();
}

namespace {

TuningTable table_of_environment() {
  const char* path = std::getenv("TUTTI_SYMM_TUNING");
  if (path == nullptr || *path == '\0') return TuningTable::defaults();
  std::string text;
  try {
    text = read_regular_file(path, kMaxFileBytes);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("TUTTI_SYMM_TUNING: {}", error.what()));
  } catch (const EnvironmentError& error) {
    throw EnvironmentError(fmt::format("TUTTI_SYMM_TUNING: {}", error.what()));
  }
  return TuningTable::parse(text);
}

// A slot of the RankContext.
struct TableInUse {
  TuningTable table = table_of_environment();
};

}  // namespace

const TuningTable& tuning_table() { return RankContext::current().slot<TableInUse>().table; }

void use_tuning_table(TuningTable table) { RankContext::current().slot<TableInUse>().table = std::move(table); }

}  // namespace tutti::comm::symm
