#include "tutti/runtime/trace/trace_merge.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "tutti/core/error.h"
#include "tutti/runtime/atomic_file.h"

namespace tutti {
namespace {

using Json = nlohmann::json;

constexpr size_t kPiece = size_t{1} << 20;

// A call of a group in one trace.
struct Call {
  int64_t pid = 0, tid = 0;
  int64_t begin_ns = 0, end_ns = 0;  // since the base of its file
};

struct RankFile {
  std::string path;
  Json json;
  RankClock clock;
  std::map<CallKey, Call> calls;
  std::set<int64_t> pids;
  int64_t rank() const { return *pids.begin(); }
};

[[noreturn]] void fail(const std::string& file, const std::string& what) {
  throw UsageError(fmt::format("{}: {}; expected a trace that tutti wrote", file, what));
}

const Json& member(const std::string& file, const Json& object, const char* key, const std::string& where) {
  if (!object.is_object()) fail(file, fmt::format("{} is {}, not an object", where, object.type_name()));
  const auto it = object.find(key);
  if (it == object.end()) fail(file, fmt::format("{} has no '{}'", where, key));
  return *it;
}

int64_t whole(const std::string& file, const Json& object, const char* key, const std::string& where) {
  const Json& value = member(file, object, key, where);
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits) fail(file, fmt::format("{}.{} is {}, not a whole number", where, key, value.dump(-1, ' ', false, Json::error_handler_t::replace)));
  return value.get<int64_t>();
}

std::string text(const std::string& file, const Json& object, const char* key, const std::string& where) {
  const Json& value = member(file, object, key, where);
  if (!value.is_string()) fail(file, fmt::format("{}.{} is {}, not a text", where, key, value.type_name()));
  return value.get<std::string>();
}

// Nanoseconds of a time that is written in microseconds with three decimals.
int64_t nanoseconds(const std::string& file, const Json& event, const char* key, const std::string& where) {
  const Json& value = member(file, event, key, where);
  const double us = value.is_number() ? value.get<double>() : NAN;
  if (!(std::abs(us) < 1e15)) fail(file, fmt::format("{}.{} is no time", where, key));
  return std::llround(us * 1e3);
}

// Whether no rank leaves such a call before all have come.
bool synchronises(const std::string& name) {
  static const std::set<std::string> names{
      "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_v", "all_gather_single", "all_gather_single_coalesced", "reduce_scatter",
      "reduce_scatter_v", "reduce_scatter_single", "reduce_scatter_single_coalesced", "all_to_all", "all_to_all_single", "all_to_all_v_single",
      "barrier", "monitored_barrier", "all_gather_bytes"};
  return names.contains(name);
}

void note_call(RankFile& file, const Json& event, const std::string& where) {
  const Json& args = member(file.path, event, "args", where);
  const std::string in_args = where + ".args";
  const int64_t sequence = whole(file.path, args, "Seq", in_args);
  if (sequence <= 0) return;  // messages have no number that two ranks share
  CallKey key{text(file.path, args, "Process Group Name", in_args), member(file.path, args, "Process Group Ranks", in_args).dump(), sequence, 0};
  while (file.calls.contains(key)) ++std::get<3>(key);  // a group of that name was made again
  Call call{whole(file.path, event, "pid", where), whole(file.path, event, "tid", where), nanoseconds(file.path, event, "ts", where), 0};
  call.end_ns = call.begin_ns + nanoseconds(file.path, event, "dur", where);
  if (synchronises(text(file.path, args, "Collective name", in_args))) file.clock.ends[key] = file.clock.base_ns + call.end_ns;
  file.calls[key] = call;
}

RankFile read(const std::string& path) {
  RankFile file{.path = path, .json = {}, .clock = {}, .calls = {}, .pids = {}};
  std::error_code ignored;
  TUTTI_CHECK_ENV(!std::filesystem::is_directory(path, ignored), "{}: cannot be read: it is a folder; name the files in it", path);
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(stream), {});
  TUTTI_CHECK_ENV(stream.is_open() && !stream.bad(), "{}: cannot be read: {}", path, detail::errno_text(errno));
  try {
    file.json = Json::parse(bytes);
  } catch (const Json::parse_error& e) {
    fail(path, fmt::format("byte {}: not JSON", e.byte));
  }
  const Json& own = member(path, file.json, "tutti", "the file");
  file.clock.base_ns = whole(path, file.json, "baseTimeNanoseconds", "the file");
  file.clock.monotonic_ns = whole(path, own, "monotonicNanoseconds", "tutti");
  file.clock.clock = text(path, own, "clock", "tutti");
  whole(path, own, "droppedEvents", "tutti");
  file.pids.insert(whole(path, member(path, file.json, "distributedInfo", "the file"), "rank", "distributedInfo"));
  const Json& events = member(path, file.json, "traceEvents", "the file");
  if (!events.is_array()) fail(path, "traceEvents is no array");
  for (size_t i = 0; i < events.size(); ++i) {
    const std::string where = fmt::format("traceEvents[{}]", i);
    const std::string phase = text(path, events[i], "ph", where);
    file.pids.insert(whole(path, events[i], "pid", where));
    nanoseconds(path, events[i], "ts", where);
    if (phase == "X" && events[i].value("cat", Json()) == "collective_comm") note_call(file, events[i], where);
  }
  return file;
}

class Merger {
 public:
  explicit Merger(std::vector<RankFile> files) : files_(std::move(files)) {
    std::vector<RankClock> clocks;
    for (RankFile& file : files_) clocks.push_back(std::move(file.clock));
    offsets_ = align_clocks(clocks);
    base_ns_ = std::numeric_limits<int64_t>::max();
    for (size_t f = 0; f < files_.size(); ++f) {
      starts_.push_back(clocks[f].base_ns + offsets_[f].ns);
      base_ns_ = std::min(base_ns_, starts_[f]);
    }
  }

  TraceMergeReport write(const std::string& out) {
    AtomicFile file(out);
    Json merged = Json::array();
    int64_t dropped = 0, world = 1;
    for (size_t f = 0; f < files_.size(); ++f) {
      report_.ranks.push_back({static_cast<int>(files_[f].rank()), files_[f].path, offsets_[f]});
      merged.push_back({{"rank", files_[f].rank()}, {"clockOffsetNanoseconds", offsets_[f].ns}, {"alignedBy", name_of(offsets_[f].by)},
                        {"matchingCollectives", offsets_[f].matches}});
      dropped += files_[f].json["tutti"]["droppedEvents"].get<int64_t>();
      world = std::max(world, files_[f].rank() + 1);
    }
    const Json head{{"schemaVersion", 1}, {"deviceProperties", Json::array()}, {"traceName", "merged"}, {"displayTimeUnit", "ms"},
                    {"baseTimeNanoseconds", base_ns_}, {"tutti", {{"ranks", merged}, {"droppedEvents", dropped}}}};
    text_ = head.dump();
    text_.back() = ',';
    text_ += "\n\"traceEvents\": [";
    for (size_t f = 0; f < files_.size(); ++f) events(f, file);
    arrows(file);
    file.write(text_ + "\n]\n}\n");
    file.commit();
    return report_;
  }

 private:
  void put(const Json& event, AtomicFile& file) {
    text_ += report_.events++ == 0 ? "\n" : ",\n";
    text_ += event.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text_.size() < kPiece) return;
    file.write(text_);
    text_.clear();
  }
  int64_t shift(size_t f) const { return starts_[f] - base_ns_; }

  void events(size_t f, AtomicFile& file) {
    int64_t largest_id = next_id_;
    for (Json& event : files_[f].json["traceEvents"]) {
      const std::string& phase = event["ph"].get_ref<const std::string&>();
      if (phase != "M") event["ts"] = microseconds(std::llround(event["ts"].get<double>() * 1e3) + shift(f));
      // Arrows of two files must not meet.
      if (const auto id = event.find("id"); id != event.end() && id->is_number_integer()) {
        *id = id->get<int64_t>() + next_id_;
        largest_id = std::max(largest_id, id->get<int64_t>());
      }
      put(event, file);
    }
    next_id_ = largest_id + 1;
    files_[f].json["traceEvents"].clear();
  }

  void arrows(AtomicFile& file) {
    std::map<CallKey, std::vector<Call>> matching;
    for (size_t f = 0; f < files_.size(); ++f) {
      for (const auto& [key, call] : files_[f].calls) {
        Call& moved = matching[key].emplace_back(call);
        moved.begin_ns += shift(f);
        moved.end_ns += shift(f);
      }
    }
    for (const auto& [key, calls] : matching) {
      if (calls.size() < 2) continue;
      ++report_.collectives;
      const Call& last = *std::max_element(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.begin_ns < b.begin_ns; });
      for (const Call& call : calls) {
        if (&call == &last) continue;
        // Who only gave (the root of a broadcast) may have left before the last came: time runs the other way then.
        if (call.end_ns >= last.begin_ns) arrow(last, last.begin_ns, call, call.end_ns, file);
        else arrow(call, call.end_ns, last, last.begin_ns, file);
      }
    }
  }
  void arrow(const Call& from, int64_t from_ns, const Call& to, int64_t to_ns, AtomicFile& file) {
    ++report_.arrows;
    const int64_t id = next_id_++;
    const auto end = [&](const char* phase, const Call& call, int64_t ns) {
      return Json{{"ph", phase}, {"cat", "collective"}, {"name", "collective"}, {"id", id}, {"pid", call.pid}, {"tid", call.tid}, {"ts", microseconds(ns)}};
    };
    put(end("s", from, from_ns), file);
    Json finish = end("f", to, to_ns);
    finish["bp"] = "e";
    put(finish, file);
  }
  static double microseconds(int64_t ns) { return static_cast<double>(ns) / 1e3; }

  std::vector<RankFile> files_;
  std::vector<ClockOffset> offsets_;
  std::vector<int64_t> starts_;  // of the files, on the reference's wall clock
  int64_t base_ns_ = 0, next_id_ = 1;
  std::string text_;
  TraceMergeReport report_;
};

}  // namespace

TraceMergeReport merge_traces(const std::string& out, std::span<const std::string> files) {
  TUTTI_CHECK(!files.empty(), "merging traces: no file was given");
  std::vector<RankFile> ranks;
  std::map<int64_t, std::string> owner;
  for (const std::string& path : files) {
    std::error_code ignored;
    TUTTI_CHECK(!std::filesystem::equivalent(path, out, ignored), "{} is both read and written; give the merged trace a name of its own", out);
    RankFile file = read(path);
    for (const int64_t pid : file.pids) {
      const auto [it, is_new] = owner.emplace(pid, path);
      TUTTI_CHECK(is_new, "{} and {} are both of rank {}; give one file per rank", it->second, path, pid);
    }
    ranks.push_back(std::move(file));
  }
  std::sort(ranks.begin(), ranks.end(), [](const RankFile& a, const RankFile& b) { return a.rank() < b.rank(); });
  return Merger(std::move(ranks)).write(out);
}

}  // namespace tutti
