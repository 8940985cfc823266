#include "tutti/runtime/trace/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/json_writer.h"

namespace tutti {
namespace {

constexpr size_t kPiece = size_t{1} << 20;
// Rows that are no threads; the system's thread ids stay below.
constexpr int64_t kFirstGroupRow = 1'000'000'000;

const char* category_name(TraceCategory category) {
  static constexpr const char* names[] = {
      "cpu_op", "kernel", "extern", "collective_comm", "user_annotation", "cpu_instant_event", "cpu_instant_event"};
  return names[static_cast<int>(category)];
}

std::string quoted_list(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) (list += list.empty() ? "" : ", ") += json_quoted(text);
  return "[" + list + "]";
}

// The half of a kernel's arguments that all its events share.
std::string facts_of(const KernelInfo& info) {
  std::string ops;
  for (const KernelOp& op : info.ops) {
    ops += fmt::format("{}{{\"name\": {}", ops.empty() ? "" : ", ", json_quoted(op.name));
    if (op.node >= 0) ops += fmt::format(", \"node\": {}", op.node);
    ops += '}';
  }
  return fmt::format("\"kernel_id\": {}, \"ops\": [{}], \"choice\": {}, \"specialization\": {}",
                     json_quoted(info.kernel_id), ops, json_quoted(info.choice), json_quoted(info.specialization));
}

class ChromeWriter {
 public:
  ChromeWriter(const Trace& trace, FunctionRef<void(std::string_view)> write) : trace_(trace), write_(write) {}

  void run() {
    head();
    for (const TraceHarvest::Thread& thread : trace_.threads) {
      for (int64_t i = 0; i < thread.size; ++i) event((*thread.log)[i], thread.log->thread());
    }
    groups();
    for (const auto& [sequence, ends] : tape_) arrow(sequence, ends);
    names();
    put("{{\"ph\": \"i\", \"name\": \"Record Window End\", \"pid\": {}, \"tid\": 0, \"s\": \"g\", \"ts\": {}}}",
        trace_.rank, time(trace_.end_ns));
    text_ += "\n]\n}\n";
    write_(text_);
  }

 private:
  // Where an op was recorded on the tape and where its gradient ran first.
  struct TapeEnds {
    const TraceEvent* ends[2] = {};
    int32_t threads[2] = {};
  };

  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    text_ += std::exchange(first_, false) ? "\n" : ",\n";
    text_ += fmt::format(format, std::forward<Args>(args)...);  // format_to() would compile fmt's engine in this file
    if (text_.size() < kPiece) return;
    write_(text_);
    text_.clear();
  }
  // Microseconds since the start; the digits are exact, which those of a double would not be.
  std::string time(int64_t ns) const { return duration(ns - trace_.start_ns); }
  static std::string duration(int64_t ns) {
    return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000);
  }

  void head() {
    text_ += fmt::format(
        "{{\n\"schemaVersion\": 1,\n\"deviceProperties\": [],\n\"traceName\": {},\n\"displayTimeUnit\": \"ms\",\n"
        "\"baseTimeNanoseconds\": {},\n\"distributedInfo\": {{\"backend\": \"tutti\", \"rank\": {}, \"world_size\": "
        "{}}},\n"
        "\"tutti\": {{\"clock\": {}, \"host\": {}, \"monotonicNanoseconds\": {}, \"droppedEvents\": {}, "
        "\"otherSessions\": {}}},\n"
        "\"traceEvents\": [",
        json_quoted(trace_.name), trace_.start_ns + trace_.wall_offset_ns, trace_.rank, trace_.world_size,
        json_quoted(trace_.clock), json_quoted(trace_.host), trace_.start_ns, trace_.dropped,
        quoted_list(trace_.other_sessions));
  }

  // "debug_handle", "kernel_id", ... of the call; empty for what is no kernel.
  std::string kernel_args(const TraceEvent& e) {
    if (e.kernel == nullptr) return {};
    const KernelInfo& info = e.kernel->info;
    std::string& facts = facts_[e.kernel];
    if (facts.empty()) facts = facts_of(info);
    return fmt::format(
        "\"debug_handle\": {}, {}, \"graph_key\": {}, \"stack\": {}, \"module_path\": {}, \"phase\": \"{}\", "
        "\"bytes\": {:.0f}, \"flops\": {:.0f}",
        json_quoted(fmt::format("{}:{}", info.kernel_id, e.call)), facts,
        json_quoted(e.context.graph_key != nullptr ? e.context.graph_key : info.graph_key),
        info.stack.empty() ? stack_of(e.context.place) : quoted_list(info.stack),
        info.module_path.empty() ? module_of(e.context.place) : json_quoted(info.module_path),
        name_of(info.phase.value_or(e.context.phase)), e.bytes < 0 ? info.bytes : e.bytes,
        e.flops < 0 ? info.flops : e.flops);
  }
  const std::string& stack_of(const TracePlace* place) {
    std::string& text = stacks_[place];
    if (text.empty()) text = place ? quoted_list(place->stack) : "[]";
    return text;
  }
  static std::string module_of(const TracePlace* place) { return place ? json_quoted(place->module_path) : "\"\""; }

  void complete(const TraceEvent& e, int64_t row, std::string_view name, std::string_view args) {
    put("{{\"ph\": \"X\", \"cat\": \"{}\", \"name\": {}, \"pid\": {}, \"tid\": {}, \"ts\": {}, \"dur\": {}, \"args\": "
        "{{{}}}}}",
        category_name(e.category), json_quoted(name), e.rank, row, time(e.begin_ns), duration(e.end_ns - e.begin_ns),
        args);
  }

  void event(const TraceEvent& e, int32_t thread) {
    ranks_.insert(e.rank);
    if (e.category == TraceCategory::collective && e.group != nullptr) {
      collectives_.push_back(&e);
      return;
    }
    rows_.insert({e.rank, thread});
    switch (e.category) {
      case TraceCategory::memory:
        memory(e, thread);
        return;
      case TraceCategory::mark:
        put("{{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"name\": {}, \"pid\": {}, \"tid\": {}, \"s\": \"t\", "
            "\"ts\": {}}}",
            json_quoted(e.name), e.rank, thread, time(e.begin_ns));
        return;
      case TraceCategory::op: {
        if (e.context.sequence >= 0) note_tape(e, thread);
        const std::string sequence =
            e.context.sequence < 0 ? "" : fmt::format(", \"Sequence number\": {}", e.context.sequence);
        complete(e, thread, e.name,
                 fmt::format("\"phase\": \"{}\", \"module_path\": {}{}", name_of(e.context.phase),
                             module_of(e.context.place), sequence));
        return;
      }
      default:
        complete(e, thread, e.name, kernel_args(e));
    }
  }

  void memory(const TraceEvent& e, int32_t thread) {
    put("{{\"ph\": \"i\", \"cat\": \"cpu_instant_event\", \"name\": \"[memory]\", \"pid\": {}, \"tid\": {}, \"s\": "
        "\"t\", \"ts\": {}, \"args\": "
        "{{\"Addr\": {}, \"Bytes\": {}, \"Total Allocated\": {}, \"Total Reserved\": {}, \"Device Type\": 0, \"Device "
        "Id\": -1, \"Category\": {}}}}}",
        e.rank, thread, time(e.begin_ns), e.values[0], e.values[1], e.values[2], e.values[3], json_quoted(e.text));
    put("{{\"ph\": \"C\", \"name\": \"memory\", \"pid\": {}, \"tid\": 0, \"ts\": {}, \"args\": {{\"allocated\": {}}}}}",
        e.rank, time(e.begin_ns), e.values[2]);
  }

  // Calls of a group stand in a row of their own, beside the threads; those that overlap in more rows.
  void groups() {
    std::sort(collectives_.begin(), collectives_.end(),
              [](const TraceEvent* a, const TraceEvent* b) { return a->begin_ns < b->begin_ns; });
    std::map<std::pair<int32_t, const TraceGroup*>, std::vector<std::pair<int64_t, int64_t>>>
        lanes;  // end of the last call, row
    for (const TraceEvent* e : collectives_) {
      auto& own = lanes[{e->rank, e->group}];
      auto lane = std::find_if(own.begin(), own.end(), [&](const auto& l) { return l.first <= e->begin_ns; });
      if (lane == own.end()) {
        const int64_t row = kFirstGroupRow + static_cast<int64_t>(group_rows_.size());
        group_rows_.push_back({e->rank, fmt::format("group '{}'{}", e->group->name,
                                                    own.empty() ? "" : fmt::format(" ({})", own.size() + 1))});
        lane = own.insert(own.end(), {0, row});
      }
      lane->first = e->end_ns;
      collective(*e, lane->second);
    }
  }

  void collective(const TraceEvent& e, int64_t row) {
    std::string args = fmt::format(
        "\"Collective name\": {}, \"In msg nelems\": {}, \"Out msg nelems\": {}, \"dtype\": {}, \"Group size\": {}, "
        "\"Process Group Name\": {}, "
        "\"Process Group Description\": {}, \"Process Group Ranks\": [{}], \"Seq\": {}",
        json_quoted(e.name), e.values[0], e.values[1], json_quoted(e.text), e.group->ranks.size(),
        json_quoted(e.group->name), json_quoted(e.group->description), fmt::join(e.group->ranks, ", "), e.values[2]);
    if (e.values[3] >= 0) args += fmt::format(", \"Root or Peer\": {}", e.values[3]);
    if (e.kernel != nullptr) (args += ", ") += kernel_args(e);
    complete(e, row, e.name, args);
  }

  void note_tape(const TraceEvent& e, int32_t thread) {
    if (e.context.phase == TracePhase::optimizer) return;
    const size_t side = e.context.phase == TracePhase::backward;
    TapeEnds& ends = tape_[{e.rank, e.context.sequence}];
    if (ends.ends[side] != nullptr && ends.ends[side]->begin_ns <= e.begin_ns) return;
    ends.ends[side] = &e;
    ends.threads[side] = thread;
  }
  void arrow(const std::pair<int32_t, int64_t>& sequence, const TapeEnds& ends) {
    if (ends.ends[0] == nullptr || ends.ends[1] == nullptr || ends.ends[1]->begin_ns < ends.ends[0]->begin_ns) return;
    ++arrows_;
    for (const size_t side : {0, 1}) {
      put("{{\"ph\": \"{}\", \"cat\": \"fwdbwd\", \"name\": \"fwdbwd\", \"id\": {}, \"pid\": {}, \"tid\": {}, \"ts\": "
          "{}{}}}",
          side == 0 ? 's' : 'f', arrows_, sequence.first, ends.threads[side], time(ends.ends[side]->begin_ns),
          side == 0 ? "" : ", \"bp\": \"e\"");
    }
  }

  void label(const char* what, int32_t rank, int64_t row, std::string_view key, std::string_view value) {
    put("{{\"ph\": \"M\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, \"ts\": 0, \"args\": {{\"{}\": {}}}}}", what,
        rank, row, key, value);
  }
  void names() {
    for (const int32_t rank : ranks_) {
      label("process_name", rank, 0, "name", json_quoted(fmt::format("rank {}", rank)));
      label("process_labels", rank, 0, "labels", json_quoted(trace_.host));
      label("process_sort_index", rank, 0, "sort_index", std::to_string(rank));
    }
    std::map<int32_t, std::string> thread_names;
    for (const TraceHarvest::Thread& thread : trace_.threads)
      thread_names[thread.log->thread()] = thread.log->thread_name();
    for (const auto& [rank, thread] : rows_) {
      const std::string& name = thread_names[thread];
      label("thread_name", rank, thread, "name",
            json_quoted(name.empty() ? fmt::format("thread {}", thread) : fmt::format("{} ({})", name, thread)));
      label("thread_sort_index", rank, thread, "sort_index", std::to_string(thread));
    }
    for (size_t i = 0; i < group_rows_.size(); ++i) {
      const int64_t row = kFirstGroupRow + static_cast<int64_t>(i);
      label("thread_name", group_rows_[i].first, row, "name", json_quoted(group_rows_[i].second));
      label("thread_sort_index", group_rows_[i].first, row, "sort_index", std::to_string(row));
    }
  }

  const Trace& trace_;
  FunctionRef<void(std::string_view)> write_;
  std::string text_;
  bool first_ = true;
  int64_t arrows_ = 0;
  std::set<int32_t> ranks_;
  std::set<std::pair<int32_t, int32_t>> rows_;  // rank, thread
  std::vector<const TraceEvent*> collectives_;
  std::vector<std::pair<int32_t, std::string>> group_rows_;  // rank, name
  std::map<std::pair<int32_t, int64_t>, TapeEnds> tape_;     // by rank and sequence number
  std::map<const TraceKernel*, std::string> facts_;
  std::map<const TracePlace*, std::string> stacks_;
};

}  // namespace

void to_chrome_trace(const Trace& trace, FunctionRef<void(std::string_view)> write) {
  ChromeWriter(trace, write).run();
}

std::string to_chrome_trace(const Trace& trace) {
  std::string text;
  to_chrome_trace(trace, [&text](std::string_view piece) { text += piece; });
  return text;
}

void write_chrome_trace(const Trace& trace, const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  TUTTI_CHECK_ENV(!error, "cannot make the folder {} for the trace: {}", folder.string(), error.message());
  AtomicFile file(path);
  to_chrome_trace(trace, [&file](std::string_view piece) { file.write(piece); });
  file.commit();
}

}  // namespace tutti
