#include "tutti/train/report/metrics.h"
#include "tutti/runtime/held_signal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

#include "tutti/core/error.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/json_document.h"
#include "tutti/runtime/json_writer.h"
#include "tutti/train/report/record_words.h"

namespace tutti::train {
namespace {

constexpr size_t kLargestFile = size_t{4} << 30;

template <class T>
std::string json_number(T value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

}  // namespace

std::string hex_float(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", value);
  return text;
}

std::string to_json(const StepRecord& r) {
  const ItemWords& words = words_of(r.model);
  std::string line = fmt::format(
      R"({{"numerics_version":{},"step":{},"loss":{},"loss_hex":"{}","grad_norm":{},"grad_norm_hex":"{}","lr":{},"{}":{})",
      r.numerics_version, r.step, json_number(r.loss), hex_float(r.loss), json_number(r.grad_norm),
      hex_float(r.grad_norm), json_number(r.lr), words.seen_key, r.items_seen);
  line += fmt::format(
      R"(,"{}":{},"tflops":{},"mfu":{},"step_ms":{},"data_ms":{},"comm_ms":{},"memory_peak_bytes":{},"product_flops":{},"sent_bytes":{})",
      words.rate_key, json_number(r.items_per_s), json_number(r.tflops), r.mfu ? json_number(*r.mfu) : "null",
      json_number(r.step_ms), json_number(r.data_ms), json_number(r.comm_ms), r.memory_peak_bytes, r.product_flops,
      r.sent_bytes);
  for (const HeldOutMetric& metric : held_out_metrics()) {
    if (const auto& value = r.*metric.value) line += fmt::format(R"(,"{}":{})", metric.key, json_number(*value));
  }
  if (!r.experts.empty()) {
    line += R"(,"experts":[)";
    for (const ExpertLoad& load : r.experts) line += (&load == r.experts.data() ? "" : ",") + to_json(load);
    line += "]";
  }
  if (!r.lost_ranks.empty()) {
    line += R"(,"lost_ranks":[)";
    for (const LostRank& lost : r.lost_ranks) {
      line += fmt::format(R"({}{{"rank":{},"pid":{},"host":{},"step":{},"seconds_lost":{}}})",
                          &lost == r.lost_ranks.data() ? "" : ",", lost.rank, lost.pid, json_quoted(lost.host),
                          lost.step, json_number(lost.seconds_lost));
    }
    line += "]";
  }
  return line + "}";
}

namespace {

StepRecord record_of(std::string_view line, const JsonOrigin& origin) {
  const JsonDocument document(line, origin);
  const JsonValue json = document.top();
  const auto number = [&](const char* key) {
    return json.at(key).is_null() ? std::numeric_limits<double>::quiet_NaN() : json.at(key).number();
  };
  const auto exact = [&](const char* key) {
    const std::string text = json.at(key).string();
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != '\0')
      json.at(key).fail("is \"{}\", expected a number in hexadecimal", text.substr(0, 40));
    return value;
  };
  const std::optional<JsonValue> version = json.find("numerics_version");
  const auto newer = [&](const char* key) {
    const std::optional<JsonValue> value = json.find(key);
    return value ? value->whole() : 0;
  };
  const ModelKind model = json.find(words_of(ModelKind::clicks).seen_key) ? ModelKind::clicks : ModelKind::language;
  const ItemWords& words = words_of(model);
  StepRecord record{.numerics_version = version ? static_cast<int>(version->whole(1, INT32_MAX)) : 1,
                    .step = json.at("step").whole(),
                    .model = model,
                    .loss = static_cast<float>(exact("loss_hex")),
                    .grad_norm = exact("grad_norm_hex"),
                    .lr = number("lr"),
                    .items_seen = json.at(words.seen_key).whole(),
                    .items_per_s = number(words.rate_key),
                    .tflops = number("tflops"),
                    .step_ms = number("step_ms"),
                    .data_ms = number("data_ms"),
                    .comm_ms = number("comm_ms"),
                    .memory_peak_bytes = newer("memory_peak_bytes"),
                    .product_flops = newer("product_flops"),
                    .sent_bytes = newer("sent_bytes")};
  if (!json.at("mfu").is_null()) record.mfu = number("mfu");
  for (const HeldOutMetric& metric : held_out_metrics()) {
    if (json.find(metric.key)) record.*metric.value = number(metric.key);
  }
  if (const auto experts = json.find("experts")) {
    for (const auto& [_, load] : *experts) record.experts.push_back(expert_load_in(load));
  }
  if (const std::optional<JsonValue> lost = json.find("lost_ranks")) {
    for (const auto& [none, one] : *lost) {
      record.lost_ranks.push_back({.rank = one.at("rank").whole(),
                                   .pid = one.at("pid").whole(),
                                   .host = one.at("host").string(),
                                   .step = one.at("step").whole(),
                                   .seconds_lost = one.at("seconds_lost").number()});
    }
  }
  return record;
}

}  // namespace

StepRecord parse_record(std::string_view line, std::string_view where) {
  return record_of(line, {.name = std::string(where)});
}

std::vector<StepRecord> read_metrics(const std::filesystem::path& path) {
  const std::string text = read_regular_file(path.string(), kLargestFile);
  std::vector<StepRecord> records;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    records.push_back(record_of(std::string_view(text).substr(begin, end - begin),
                                {.name = path.string(), .line = static_cast<int64_t>(records.size()) + 1}));
  }
  return records;
}

MetricsWriter::MetricsWriter(std::filesystem::path path, int64_t resumed_step) : path_(std::move(path)) {
  std::string kept;
  if (resumed_step > 0 && std::filesystem::exists(path_)) {
    for (const StepRecord& record : read_metrics(path_)) {
      if (record.step <= resumed_step) kept += to_json(record) + "\n";
    }
  }
  write_file_atomically(path_.string(), kept);
  fd_ = open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  TUTTI_CHECK_ENV(fd_ >= 0, "cannot append to {}: {}", path_.string(), detail::errno_text(errno));
}

MetricsWriter::~MetricsWriter() { close(fd_); }

void MetricsWriter::write(const StepRecord& record) {
  const std::string line = to_json(record) + "\n";
  const HeldSignal held(SIGXFSZ);
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    TUTTI_CHECK_ENV(written > 0, "cannot write step {} to {}: {}", record.step, path_.string(),
                    detail::errno_text(errno));
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace tutti::train
