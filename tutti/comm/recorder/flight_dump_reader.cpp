// Reads dumps. A dump may come from a broken disk or another program: every value is looked at before it is used.
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "tutti/comm/recorder/flight_dump.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxText = 1 << 20, kMaxRanks = 1 << 20, kMaxDims = 64, kMaxTensors = 1 << 16;

// A value and where it stands in the file.
class Place {
 public:
  Place(const Json& value, const std::string& file, std::string path) : value_(value), file_(file), path_(std::move(path)) {}

  const Json& value() const { return value_; }
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> text, Args&&... args) const {
    throw UsageError(fmt::format("{}: {}: {}", file_, path_.empty() ? "the file" : path_, fmt::format(text, std::forward<Args>(args)...)));
  }
  bool has(const char* key) const { return value_.is_object() && value_.contains(key) && !value_[key].is_null(); }
  Place at(const std::string& key) const {
    if (!value_.is_object()) fail("is {}, expected an object", value_.type_name());
    const auto entry = value_.find(key);
    if (entry == value_.end()) fail("has no '{}'", key);
    return Place(*entry, file_, path_.empty() ? key : path_ + "." + key);
  }
  Place at(size_t index) const { return Place(value_[index], file_, fmt::format("{}[{}]", path_, index)); }

  size_t size(size_t most) const {
    if (!value_.is_array()) fail("is {}, expected an array", value_.type_name());
    if (value_.size() > most) fail("has {} elements, at most {} are legal", value_.size(), most);
    return value_.size();
  }
  int64_t number() const {
    // Some writers give numbers as text.
    if (value_.is_string()) return parse(value_.get_ref<const std::string&>(), 10);
    if (value_.is_number_unsigned() && value_.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      fail("{} is larger than a number can be here", value_.get<uint64_t>());
    if (!value_.is_number_integer()) fail("is {}, expected a whole number", value_.type_name());
    return value_.get<int64_t>();
  }
  int64_t number(int64_t least, int64_t most) const {
    const int64_t n = number();
    if (n < least || n > most) fail("is {}, expected a number from {} to {}", n, least, most);
    return n;
  }
  uint64_t hex() const { return static_cast<uint64_t>(parse_unsigned(text(), 16)); }
  bool boolean() const {
    if (!value_.is_boolean()) fail("is {}, expected true or false", value_.type_name());
    return value_.get<bool>();
  }
  const std::string& text() const {
    if (!value_.is_string()) fail("is {}, expected text", value_.type_name());
    const auto& text = value_.get_ref<const std::string&>();
    if (text.size() > kMaxText) fail("has {} bytes, at most {} are legal", text.size(), kMaxText);
    return text;
  }
  int64_t parse(std::string_view text, int base) const {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n, base);
    if (error != std::errc() || end != text.data() + text.size()) fail("'{}' is not a whole number", text.substr(0, 40));
    return n;
  }
  uint64_t parse_unsigned(std::string_view text, int base) const {
    uint64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n, base);
    if (error != std::errc() || end != text.data() + text.size()) fail("'{}' is not a number", text.substr(0, 40));
    return n;
  }

  // Optional keys.
  int64_t number_or(const char* key, int64_t otherwise) const { return has(key) ? at(key).number() : otherwise; }
  std::string text_or(const char* key, const char* otherwise) const { return has(key) ? at(key).text() : otherwise; }

 private:
  const Json& value_;
  const std::string& file_;
  std::string path_;
};

// The ranks of a group: an array, or one written as text.
std::vector<int> ranks_from(const Place& place, const std::string& file) {
  Json parsed;
  if (place.value().is_string()) {
    parsed = Json::parse(place.text(), nullptr, false);
    if (parsed.is_discarded()) place.fail("'{}' is not a list of ranks", place.text().substr(0, 40));
  } else {
    parsed = place.value();
  }
  if (!parsed.is_array()) place.fail("is {}, expected a list of ranks", parsed.type_name());
  const Place list(parsed, file, "ranks");
  std::vector<int> ranks(list.size(kMaxRanks));
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(list.at(i).number(0, std::numeric_limits<int>::max() - 1));
  return ranks;
}

std::vector<std::vector<int64_t>> sizes_from(const Place& place) {
  std::vector<std::vector<int64_t>> sizes(place.size(kMaxTensors));
  for (size_t t = 0; t < sizes.size(); ++t) {
    const Place one = place.at(t);
    for (size_t d = 0; d < one.size(kMaxDims); ++d) sizes[t].push_back(one.at(d).number());
  }
  return sizes;
}

std::vector<std::string> texts_from(const Place& place) {
  std::vector<std::string> texts(place.size(kMaxTensors));
  for (size_t t = 0; t < texts.size(); ++t) texts[t] = place.at(t).text();
  return texts;
}

FlightState state_from(const Place& place) {
  for (const auto state : {FlightState::scheduled, FlightState::started, FlightState::completed, FlightState::failed}) {
    if (name_of(state) == place.text()) return state;
  }
  place.fail("'{}' is not a state; known: scheduled, started, completed, failed", place.text().substr(0, 40));
}

FlightEntry entry_from(const Place& e) {
  FlightEntry entry;
  entry.record_id = e.at("record_id").number();
  entry.pg_id = e.number_or("pg_id", 0);
  const Place group = e.at("process_group");
  if (group.size(2) != 2) group.fail("has {} elements, expected name and description", group.value().size());
  entry.group = group.at(size_t{0}).text();
  entry.group_description = group.at(size_t{1}).text();
  entry.is_p2p = e.has("is_p2p") && e.at("is_p2p").boolean();
  entry.sequence = e.at(entry.is_p2p ? "p2p_seq_id" : "collective_seq_id").number(0, std::numeric_limits<int64_t>::max() - 1);
  entry.name = e.at("profiling_name").text();
  if (const size_t colon = entry.name.find(':'); colon != std::string::npos) entry.name.erase(0, colon + 1);
  entry.call = e.text_or("call", "");
  if (e.has("input_sizes")) entry.input_sizes = sizes_from(e.at("input_sizes"));
  if (e.has("output_sizes")) entry.output_sizes = sizes_from(e.at("output_sizes"));
  if (e.has("input_dtypes")) entry.input_dtypes = texts_from(e.at("input_dtypes"));
  if (e.has("output_dtypes")) entry.output_dtypes = texts_from(e.at("output_dtypes"));
  entry.reduce_op = e.text_or("reduce_op", "");
  entry.root = e.number_or("root", -1);
  entry.tag = e.number_or("tag", 0);
  entry.tensors = e.number_or("tensors", 1);
  entry.same_sizes = !e.has("same_sizes") || e.at("same_sizes").boolean();
  entry.splits = e.has("splits") ? e.at("splits").hex() : 0;
  entry.created_ns = e.number_or("time_created_ns", 0);
  entry.started_ns = e.number_or("time_discovered_started_ns", 0);
  entry.ended_ns = e.number_or("time_discovered_completed_ns", 0);
  entry.timeout_ms = e.number_or("timeout_ms", 0);
  entry.state = state_from(e.at("state"));
  entry.thread_id = e.number_or("thread_id", 0);
  entry.thread_name = e.text_or("thread_name", "");
  return entry;
}

FlightMark mark_from(const Place& status, const std::string& what) {
  FlightMark mark;
  mark.sequence = status.at("last_" + what + "_collective").number();
  mark.name = status.text_or(("last_" + what + "_collective_name").c_str(), "");
  mark.numel_in = status.number_or(("last_" + what + "_numel_in").c_str(), 0);
  mark.numel_out = status.number_or(("last_" + what + "_numel_out").c_str(), 0);
  return mark;
}

// "<prefix>12" is of rank 12.
int64_t rank_in_name(const std::string& file, const Place& top) {
  std::string stem = std::filesystem::path(file).filename().string();
  if (stem.ends_with(".json")) stem.resize(stem.size() - 5);
  size_t first = stem.size();
  while (first > 0 && stem[first - 1] >= '0' && stem[first - 1] <= '9') --first;
  if (first == stem.size() || stem.size() - first > 9) {
    top.fail("has no 'rank', and the name of the file does not end in one");
  }
  return std::stoll(stem.substr(first));
}

}  // namespace

FlightDump read_flight_dump(std::string_view text, const std::string& file) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    // A number that no double can hold has no position of its own.
    const auto* syntax = dynamic_cast<const Json::parse_error*>(&error);
    const std::string what = error.what(), where = syntax ? fmt::format("byte {}", syntax->byte) : "the file";
    const size_t colon = what.rfind(": ");
    throw UsageError(fmt::format("{}: {}: not JSON: {}", file, where, colon == std::string::npos ? what : what.substr(colon + 2)));
  }
  const Place top(json, file, "");
  FlightDump dump;
  dump.file = file;
  dump.version = top.at("version").text();
  if (!dump.version.starts_with("2.")) top.at("version").fail("is '{}'; versions 2.x can be read", dump.version.substr(0, 40));
  dump.library = top.text_or("comm_lib_version", "");
  dump.rank = top.has("rank") ? top.at("rank").number(0, std::numeric_limits<int>::max() - 1) : rank_in_name(file, top);
  dump.world_size = top.number_or("world_size", 0);
  dump.host = top.text_or("host", "");
  dump.pid = top.number_or("pid", 0);
  dump.reason = top.text_or("reason", "");
  dump.dumped_ns = top.number_or("time_dumped_ns", 0);

  const Place entries = top.at("entries");
  const size_t count = entries.size(1 << 20);
  std::map<std::string, int64_t> ids;  // of groups, by name
  for (size_t i = 0; i < count; ++i) {
    dump.entries.push_back(entry_from(entries.at(i)));
    ids[dump.entries.back().group] = dump.entries.back().pg_id;
  }
  // pg_config is keyed by name, pg_status by id. Where pg_config has no ids, entries tell them.
  const Place config = top.at("pg_config"), status = top.at("pg_status");
  if (!config.value().is_object()) config.fail("is {}, expected an object", config.value().type_name());
  if (!status.value().is_object()) status.fail("is {}, expected an object", status.value().type_name());
  for (const auto& [key, value] : config.value().items()) {
    const Place one = config.at(key);
    FlightGroupStatus group;
    group.name = one.at("name").text();
    group.description = one.text_or("desc", "");
    group.ranks = ranks_from(one.at("ranks"), file);
    group.id = one.has("id") ? one.at("id").number() : ids.contains(group.name) ? ids[group.name] : -1;
    if (const std::string id = std::to_string(group.id); status.value().contains(id)) {
      group.enqueued = mark_from(status.at(id), "enqueued");
      group.started = mark_from(status.at(id), "started");
      group.completed = mark_from(status.at(id), "completed");
    }
    dump.groups.push_back(std::move(group));
  }
  return dump;
}

FlightDump read_flight_dump_file(const std::string& file) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(file, error);
  TUTTI_CHECK_ENV(!error, "{}: cannot be read: {}; give the files that the flight recorder wrote", file, error.message());
  TUTTI_CHECK(bytes <= static_cast<uintmax_t>(kMaxFlightDumpBytes), "{}: {} bytes are more than a dump has ({} at most)", file, bytes,
              kMaxFlightDumpBytes);
  std::ifstream stream(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  TUTTI_CHECK_ENV(stream.good() || stream.eof(), "{}: cannot be read", file);
  return read_flight_dump(text, file);
}

}  // namespace tutti::comm
