#include "tutti/runtime/trace/trace_merge.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "tutti/core/error.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/json_document.h"
#include "tutti/runtime/json_writer.h"

namespace tutti {
namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr int64_t kLargestTime = int64_t{1} << 61;  // ns since 1970, until 2043; sums of them stay in 64 bits
constexpr int64_t kLargestId = int64_t{1} << 53;

// A call of a group in one trace.
struct Call {
  int64_t pid = 0, tid = 0;
  int64_t begin_ns = 0, end_ns = 0;  // since the base of its file
};

struct RankFile {
  std::string path;
  JsonDocument json;
  RankClock clock;
  std::map<CallKey, Call> calls;
  std::set<int64_t> pids;
  int64_t dropped = 0;
  int64_t rank() const { return *pids.begin(); }
};

// A trace of a day of training has some GiB.
constexpr JsonLimits kLimits{.depth = 32, .nbytes = (size_t{4} << 30) - 1, .values = size_t{1} << 28};

// Writes a value again that was read. No deeper than the limit.
void copy(const JsonValue& value, JsonWriter& json) {
  if (value.is_null()) json.value(nullptr);
  else if (value.is_boolean()) json.value(value.boolean());
  else if (value.is_text()) json.value(value.text());
  else if (value.is_whole()) json.value(value.whole());
  else if (value.is_number()) json.value(value.number());
  else {
    value.is_array() ? json.array() : json.object();
    for (const auto& [key, inner] : value) {
      if (value.is_object()) json.key(key);
      copy(inner, json);
    }
    json.end();
  }
}

std::string text_of(const JsonValue& value) {
  JsonWriter json;
  copy(value, json);
  return json.take();
}

// Nanoseconds of a time that is written in microseconds with three decimals.
int64_t nanoseconds(const JsonValue& time) {
  const double us = time.number();
  if (!(std::abs(us) < 1e14)) time.fail("is {}, which is no time", time.shown());
  return std::llround(us * 1e3);
}

// Whether no rank leaves such a call before all have come.
bool synchronises(const std::string& name) {
  static const std::set<std::string> names{"all_reduce",
                                           "all_reduce_coalesced",
                                           "all_gather",
                                           "all_gather_v",
                                           "all_gather_coalesced",
                                           "all_gather_single",
                                           "all_gather_single_coalesced",
                                           "reduce_scatter",
                                           "reduce_scatter_v",
                                           "reduce_scatter_single",
                                           "reduce_scatter_single_coalesced",
                                           "all_to_all",
                                           "all_to_all_single",
                                           "all_to_all_v_single",
                                           "barrier",
                                           "monitored_barrier",
                                           "all_gather_bytes"};
  return names.contains(name);
}

void note_call(RankFile& file, const JsonValue& event) {
  const JsonValue args = event.at("args");
  const int64_t sequence = args.at("Seq").whole();
  if (sequence <= 0) return;  // messages have no number that two ranks share
  CallKey key{args.at("Process Group Name").string(), text_of(args.at("Process Group Ranks")), sequence, 0};
  while (file.calls.contains(key)) ++std::get<3>(key);  // a group of that name was made again
  Call call{event.at("pid").whole(), event.at("tid").whole(), nanoseconds(event.at("ts")), 0};
  call.end_ns = call.begin_ns + nanoseconds(event.at("dur"));
  if (synchronises(args.at("Collective name").string())) file.clock.ends[key] = file.clock.base_ns + call.end_ns;
  file.calls[key] = call;
}

RankFile read(const std::string& path) {
  RankFile file{.path = path, .json = JsonDocument::read(path, kLimits), .clock = {}, .calls = {}, .pids = {}};
  const JsonValue top = file.json.top(), own = top.at("tutti");
  file.clock.base_ns = top.at("baseTimeNanoseconds").whole(0, kLargestTime);
  file.clock.monotonic_ns = own.at("monotonicNanoseconds").whole(0, kLargestTime);
  file.clock.clock = own.at("clock").string();
  file.dropped = own.at("droppedEvents").whole(0, kLargestTime);
  file.pids.insert(top.at("distributedInfo").at("rank").whole(0, INT_MAX));
  const JsonValue events = top.at("traceEvents");
  if (!events.is_array()) events.fail("is {}, expected an array", events.shown());
  for (const auto& [none, event] : events) {
    const std::string_view phase = event.at("ph").text();
    file.pids.insert(event.at("pid").whole(0, INT_MAX));
    nanoseconds(event.at("ts"));
    const auto category = event.find("cat");
    if (phase == "X" && category && category->is_text() && category->text() == "collective_comm")
      note_call(file, event);
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
    head();
    for (size_t f = 0; f < files_.size(); ++f) events(f, file);
    arrows(file);
    file.write(text_ + "\n]\n}\n");
    file.commit();
    return report_;
  }

 private:
  void head() {
    JsonWriter json;
    json.object()
        .member("schemaVersion", 1)
        .key("deviceProperties")
        .array()
        .end()
        .member("traceName", "merged")
        .member("displayTimeUnit", "ms");
    json.member("baseTimeNanoseconds", base_ns_).key("tutti").object().key("ranks").array();
    int64_t dropped = 0;
    for (size_t f = 0; f < files_.size(); ++f) {
      report_.ranks.push_back({static_cast<int>(files_[f].rank()), files_[f].path, offsets_[f]});
      json.object().member("rank", files_[f].rank()).member("clockOffsetNanoseconds", offsets_[f].ns);
      json.member("alignedBy", name_of(offsets_[f].by)).member("matchingCollectives", offsets_[f].matches).end();
      dropped += files_[f].dropped;
    }
    text_ = json.end().member("droppedEvents", dropped).end().end().take();
    text_.back() = ',';
    text_ += "\n\"traceEvents\": [";
  }

  void put(const std::string& event, AtomicFile& file) {
    text_ += report_.events++ == 0 ? "\n" : ",\n";
    text_ += event;
    if (text_.size() < kPiece) return;
    file.write(text_);
    text_.clear();
  }
  int64_t shift(size_t f) const { return starts_[f] - base_ns_; }

  void events(size_t f, AtomicFile& file) {
    int64_t largest_id = next_id_;
    for (const auto& [none, read] : files_[f].json.top().at("traceEvents")) {
      const bool has_time = read.at("ph").text() != "M";
      JsonWriter event;
      event.object();
      for (const auto& [key, value] : read) {
        event.key(key);
        if (key == "ts" && has_time) {
          event.raw(microseconds(nanoseconds(value) + shift(f)));
        } else if (key == "id" && value.is_whole()) {  // arrows of two files must not meet
          const int64_t moved = value.whole(-kLargestId, kLargestId) + next_id_;
          event.value(moved);
          largest_id = std::max(largest_id, moved);
        } else {
          copy(value, event);
        }
      }
      put(event.end().take(), file);
    }
    next_id_ = largest_id + 1;
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
      const Call& last = *std::max_element(calls.begin(), calls.end(),
                                           [](const Call& a, const Call& b) { return a.begin_ns < b.begin_ns; });
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
      JsonWriter json;
      json.object().member("ph", phase).member("cat", "collective").member("name", "collective").member("id", id);
      json.member("pid", call.pid).member("tid", call.tid).key("ts").raw(microseconds(ns));
      if (*phase == 'f') json.member("bp", "e");
      put(json.end().take(), file);
    };
    end("s", from, from_ns);
    end("f", to, to_ns);
  }
  // Exact digits, which those of a double would not be.
  static std::string microseconds(int64_t ns) {
    return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
  }

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
    TUTTI_CHECK(!std::filesystem::equivalent(path, out, ignored),
                "{} is both read and written; give the merged trace a name of its own", out);
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
