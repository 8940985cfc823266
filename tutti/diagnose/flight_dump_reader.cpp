// Reads dumps. A dump may come from a broken disk or another program: every value is looked at before it is used.
#include <charconv>
#include <filesystem>
#include <limits>
#include <map>

#include "tutti/diagnose/flight_dump.h"
#include "tutti/runtime/json_document.h"

namespace tutti::comm {
namespace {

constexpr size_t kMaxText = 1 << 20, kMaxRanks = 1 << 20, kMaxDims = 64, kMaxTensors = 1 << 16, kMaxEntries = 1 << 20;
constexpr JsonLimits kLimits{.depth = 16, .nbytes = static_cast<size_t>(kMaxFlightDumpBytes)};

template <class T>
T parsed(const JsonValue& value, std::string_view text, int base) {
  T n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n, base);
  if (error != std::errc() || end != text.data() + text.size())
    value.fail("'{}' is not a whole number", text.substr(0, 40));
  return n;
}

// Some writers give numbers as text.
int64_t number(const JsonValue& value) {
  return value.is_text() ? parsed<int64_t>(value, value.text(), 10) : value.whole();
}

int64_t number(const JsonValue& value, int64_t least, int64_t most) {
  const int64_t n = number(value);
  if (n < least || n > most) value.fail("is {}, expected a number from {} to {}", n, least, most);
  return n;
}

std::string text(const JsonValue& value) {
  if (value.text().size() > kMaxText) value.fail("has {} bytes, at most {} are legal", value.text().size(), kMaxText);
  return value.string();
}

// The values of an array of at most `most`.
std::vector<JsonValue> items(const JsonValue& array, size_t most) {
  if (!array.is_array()) array.fail("is {}, expected an array", array.shown());
  if (array.size() > most) array.fail("has {} elements, at most {} are legal", array.size(), most);
  std::vector<JsonValue> all;
  for (const auto& [none, value] : array) all.push_back(value);
  return all;
}

// Optional keys.
int64_t number_or(const JsonValue& object, const std::string& key, int64_t otherwise) {
  const auto value = object.find_set(key);
  return value ? number(*value) : otherwise;
}
std::string text_or(const JsonValue& object, const std::string& key, const char* otherwise) {
  const auto value = object.find_set(key);
  return value ? text(*value) : otherwise;
}
bool flag_or(const JsonValue& object, const char* key, bool otherwise) {
  const auto value = object.find_set(key);
  return value ? value->boolean() : otherwise;
}

std::vector<int> ranks_in(const JsonValue& list) {
  std::vector<int> ranks;
  for (const JsonValue& rank : items(list, kMaxRanks))
    ranks.push_back(static_cast<int>(number(rank, 0, std::numeric_limits<int>::max() - 1)));
  return ranks;
}

// The ranks of a group: an array, or one written as text.
std::vector<int> ranks_from(const JsonValue& value) {
  return value.is_text() ? ranks_in(JsonDocument(text(value), {.name = value.where()}, kLimits).top())
                         : ranks_in(value);
}

std::vector<std::vector<int64_t>> sizes_from(const JsonValue& value) {
  std::vector<std::vector<int64_t>> sizes;
  for (const JsonValue& tensor : items(value, kMaxTensors)) {
    sizes.emplace_back();
    for (const JsonValue& size : items(tensor, kMaxDims)) sizes.back().push_back(number(size));
  }
  return sizes;
}

std::vector<std::string> texts_from(const JsonValue& value) {
  std::vector<std::string> texts;
  for (const JsonValue& one : items(value, kMaxTensors)) texts.push_back(text(one));
  return texts;
}

FlightState state_from(const JsonValue& value) {
  for (const auto state : {FlightState::scheduled, FlightState::started, FlightState::completed, FlightState::failed}) {
    if (name_of(state) == value.text()) return state;
  }
  value.fail("is {}, which is no state; known: scheduled, started, completed, failed", value.shown());
}

FlightEntry entry_from(const JsonValue& e) {
  FlightEntry entry;
  entry.record_id = number(e.at("record_id"));
  entry.pg_id = number_or(e, "pg_id", 0);
  const std::vector<JsonValue> group = items(e.at("process_group"), 2);
  if (group.size() != 2) e.at("process_group").fail("has {} elements, expected name and description", group.size());
  entry.group = text(group[0]);
  entry.group_description = text(group[1]);
  entry.is_p2p = flag_or(e, "is_p2p", false);
  entry.sequence =
      number(e.at(entry.is_p2p ? "p2p_seq_id" : "collective_seq_id"), 0, std::numeric_limits<int64_t>::max() - 1);
  entry.name = text(e.at("profiling_name"));
  if (const size_t colon = entry.name.find(':'); colon != std::string::npos) entry.name.erase(0, colon + 1);
  entry.call = text_or(e, "call", "");
  if (const auto sizes = e.find_set("input_sizes")) entry.input_sizes = sizes_from(*sizes);
  if (const auto sizes = e.find_set("output_sizes")) entry.output_sizes = sizes_from(*sizes);
  if (const auto dtypes = e.find_set("input_dtypes")) entry.input_dtypes = texts_from(*dtypes);
  if (const auto dtypes = e.find_set("output_dtypes")) entry.output_dtypes = texts_from(*dtypes);
  entry.reduce_op = text_or(e, "reduce_op", "");
  entry.root = number_or(e, "root", -1);
  entry.tag = number_or(e, "tag", 0);
  entry.tensors = number_or(e, "tensors", 1);
  entry.same_sizes = flag_or(e, "same_sizes", true);
  if (const auto splits = e.find_set("splits")) entry.splits = parsed<uint64_t>(*splits, splits->text(), 16);
  entry.created_ns = number_or(e, "time_created_ns", 0);
  entry.started_ns = number_or(e, "time_discovered_started_ns", 0);
  entry.ended_ns = number_or(e, "time_discovered_completed_ns", 0);
  entry.timeout_ms = number_or(e, "timeout_ms", 0);
  entry.state = state_from(e.at("state"));
  entry.thread_id = number_or(e, "thread_id", 0);
  entry.thread_name = text_or(e, "thread_name", "");
  return entry;
}

FlightMark mark_from(const JsonValue& status, const std::string& what) {
  FlightMark mark;
  mark.sequence = number(status.at("last_" + what + "_collective"));
  mark.name = text_or(status, "last_" + what + "_collective_name", "");
  mark.numel_in = number_or(status, "last_" + what + "_numel_in", 0);
  mark.numel_out = number_or(status, "last_" + what + "_numel_out", 0);
  return mark;
}

// "<prefix>12" is of rank 12.
int64_t rank_in_name(const std::string& file, const JsonValue& top) {
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

FlightDump read_flight_dump(std::string_view bytes, const std::string& file) {
  const JsonDocument document(bytes, {.name = file}, kLimits);
  const JsonValue top = document.top();
  FlightDump dump;
  dump.file = file;
  dump.version = text(top.at("version"));
  if (!dump.version.starts_with("2."))
    top.at("version").fail("is '{}'; versions 2.x can be read", dump.version.substr(0, 40));
  dump.library = text_or(top, "comm_lib_version", "");
  const auto rank = top.find_set("rank");
  dump.rank = rank ? number(*rank, 0, std::numeric_limits<int>::max() - 1) : rank_in_name(file, top);
  dump.world_size = number_or(top, "world_size", 0);
  dump.host = text_or(top, "host", "");
  dump.pid = number_or(top, "pid", 0);
  dump.reason = text_or(top, "reason", "");
  dump.dumped_ns = number_or(top, "time_dumped_ns", 0);

  std::map<std::string, int64_t> ids;  // of groups, by name
  for (const JsonValue& entry : items(top.at("entries"), kMaxEntries)) {
    dump.entries.push_back(entry_from(entry));
    ids[dump.entries.back().group] = dump.entries.back().pg_id;
  }
  // pg_config is keyed by name, pg_status by id. Where pg_config has no ids, entries tell them.
  const JsonValue config = top.at("pg_config"), status = top.at("pg_status");
  if (!config.is_object()) config.fail("is {}, expected an object", config.shown());
  for (const auto& [key, one] : config) {
    FlightGroupStatus group;
    group.name = text(one.at("name"));
    group.description = text_or(one, "desc", "");
    group.ranks = ranks_from(one.at("ranks"));
    const auto id = one.find_set("id");
    group.id = id ? number(*id) : ids.contains(group.name) ? ids[group.name] : -1;
    if (const auto marks = status.find(std::to_string(group.id))) {
      group.enqueued = mark_from(*marks, "enqueued");
      group.started = mark_from(*marks, "started");
      group.completed = mark_from(*marks, "completed");
    }
    dump.groups.push_back(std::move(group));
  }
  return dump;
}

FlightDump read_flight_dump_file(const std::string& file) {
  return read_flight_dump(read_regular_file(file, kLimits.nbytes), file);
}

}  // namespace tutti::comm
