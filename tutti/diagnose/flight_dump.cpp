#include "tutti/diagnose/flight_dump.h"

#include <fmt/format.h>

namespace tutti::comm {
namespace {

// JSON text. Bytes that are no UTF-8 become "?", so that every reader takes the file.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += text[i++];
    } else if (c < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", c);
      ++i;
    } else if (c < 0x80) {
      out += text[i++];
    } else {
      const size_t length = c >= 0xc2 && c < 0xe0                ? 2
                            : c >= 0xe1 && c < 0xf0 && c != 0xed ? 3
                            : c >= 0xf1 && c < 0xf4              ? 4
                                                                 : 0;
      bool whole = length != 0 && i + length <= text.size();
      for (size_t k = 1; whole && k < length; ++k) whole = (static_cast<unsigned char>(text[i + k]) & 0xc0) == 0x80;
      out += whole ? text.substr(i, length) : std::string_view("?");
      i += whole ? length : 1;
    }
  }
  return out + '"';
}

template <class List, class Fn>
std::string list(const List& values, Fn&& text) {
  std::string out = "[";
  for (const auto& value : values) {
    if (out.size() > 1) out += ", ";
    out += text(value);
  }
  return out + "]";
}

std::string numbers(const std::vector<int64_t>& values) {
  return list(values, [](int64_t v) { return std::to_string(v); });
}

// Events that have not happened are null.
std::string time_or_null(int64_t ns) { return ns == 0 ? "null" : std::to_string(ns); }

std::string group_status(const FlightGroupStatus& g) {
  const auto mark = [](const char* what, const FlightMark& m) {
    return fmt::format(
        "\"last_{0}_collective\": {1}, \"last_{0}_collective_name\": {2}, \"last_{0}_numel_in\": {3}, "
        "\"last_{0}_numel_out\": {4}",
        what, m.sequence, json_string(m.name), m.numel_in, m.numel_out);
  };
  return fmt::format("{}: {{{}, {}, {}}}", json_string(std::to_string(g.id)), mark("enqueued", g.enqueued),
                     mark("started", g.started), mark("completed", g.completed));
}

std::string group_config(const FlightGroupStatus& g) {
  // Readers of this format expect the ranks as text.
  const std::string ranks = list(g.ranks, [](int r) { return std::to_string(r); });
  return fmt::format("{}: {{\"name\": {}, \"desc\": {}, \"id\": {}, \"ranks\": {}}}", json_string(g.name),
                     json_string(g.name), json_string(g.description), g.id, json_string(ranks));
}

std::string entry_text(const FlightEntry& e) {
  const bool is_over = e.state == FlightState::completed || e.state == FlightState::failed;
  std::string out = "{";
  const auto add = [&](const char* key, const std::string& value) {
    out += fmt::format("{}\"{}\": {}", out.size() > 1 ? ", " : "", key, value);
  };
  add("record_id", std::to_string(e.record_id));
  add("pg_id", std::to_string(e.pg_id));
  add("process_group", fmt::format("[{}, {}]", json_string(e.group), json_string(e.group_description)));
  add("collective_seq_id", std::to_string(e.is_p2p ? 0 : e.sequence));
  add("p2p_seq_id", std::to_string(e.is_p2p ? e.sequence : 0));
  add("is_p2p", e.is_p2p ? "true" : "false");
  add("op_id", std::to_string(e.record_id + 1));
  add("profiling_name", json_string("tutti:" + e.name));
  add("call", json_string(e.call));
  add("input_sizes", list(e.input_sizes, numbers));
  add("input_dtypes", list(e.input_dtypes, json_string));
  add("output_sizes", list(e.output_sizes, numbers));
  add("output_dtypes", list(e.output_dtypes, json_string));
  add("reduce_op", e.reduce_op.empty() ? "null" : json_string(e.reduce_op));
  add("root", std::to_string(e.root));
  add("tag", std::to_string(e.tag));
  add("tensors", std::to_string(e.tensors));
  add("same_sizes", e.same_sizes ? "true" : "false");
  add("splits", json_string(fmt::format("{:016x}", e.splits)));
  add("time_created_ns", std::to_string(e.created_ns));
  add("time_discovered_started_ns", time_or_null(e.started_ns));
  add("time_discovered_completed_ns", time_or_null(e.ended_ns));
  add("duration_ms", e.started_ns != 0 && e.ended_ns != 0
                         ? fmt::format("{:.6f}", static_cast<double>(e.ended_ns - e.started_ns) / 1e6)
                         : "null");
  add("timeout_ms", std::to_string(e.timeout_ms));
  add("state", json_string(name_of(e.state)));
  add("retired", is_over ? "true" : "false");
  add("thread_id", json_string(std::to_string(e.thread_id)));
  add("thread_name", json_string(e.thread_name));
  add("frames", "[]");
  return out + "}";
}

template <class List, class Fn>
std::string lines(const List& values, Fn&& text) {
  std::string out;
  for (const auto& value : values) out += (out.empty() ? "\n  " : ",\n  ") + text(value);
  return out;
}

}  // namespace

std::string_view name_of(FlightState state) {
  switch (state) {
    case FlightState::scheduled:
      return "scheduled";
    case FlightState::started:
      return "started";
    case FlightState::completed:
      return "completed";
    case FlightState::failed:
      return "failed";
  }
  return "unknown";
}

std::string to_json(const FlightDump& d) {
  return fmt::format(
      "{{\"version\": {}, \"comm_lib_version\": {}, \"rank\": {}, \"world_size\": {}, \"host\": {}, \"pid\": {}, "
      "\"reason\": {}, \"time_dumped_ns\": {},\n\"pg_config\": {{{}}},\n\"pg_status\": {{{}}},\n\"nccl_comm_state\": "
      "{{}},\n"
      "\"entries\": [{}]}}\n",
      json_string(d.version), json_string(d.library), d.rank, d.world_size, json_string(d.host), d.pid,
      json_string(d.reason), d.dumped_ns, lines(d.groups, group_config), lines(d.groups, group_status),
      lines(d.entries, entry_text));
}

}  // namespace tutti::comm
