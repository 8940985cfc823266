#include "tutti/io/chat_template/marked_text.h"

#include <algorithm>

namespace tutti::jinja {
namespace {

auto run_of(const std::vector<MarkedText::Run>& runs, size_t i) {
  return std::upper_bound(runs.begin(), runs.end(), i,
                          [](size_t at, const MarkedText::Run& run) { return at < run.end; });
}

}  // namespace

Marks MarkedText::marks_at(size_t i) const { return runs_.empty() ? Marks{0} : run_of(runs_, i)->marks; }

void MarkedText::append(std::string_view bytes, Marks marks) {
  if (bytes.empty()) return;
  if (runs_.empty() && marks != 0 && !bytes_.empty()) runs_.push_back({bytes_.size(), 0});
  bytes_ += bytes;
  if (runs_.empty() && marks == 0) return;
  if (!runs_.empty() && runs_.back().marks == marks) runs_.back().end = bytes_.size();
  else runs_.push_back({bytes_.size(), marks});
}

void MarkedText::append(const MarkedText& other, size_t begin, size_t end) {
  const std::string_view bytes = other.bytes_;
  if (other.runs_.empty()) return append(bytes.substr(begin, end - begin), 0);
  for (auto run = run_of(other.runs_, begin); begin < end; ++run) {
    const size_t stop = std::min(end, run->end);
    append(bytes.substr(begin, stop - begin), run->marks);
    begin = stop;
  }
}

MarkedText MarkedText::slice(size_t begin, size_t end) const {
  MarkedText part;
  part.append(*this, begin, end);
  return part;
}

void MarkedText::mark(Marks marks) {
  if (bytes_.empty()) return;
  if (runs_.empty()) runs_.push_back({bytes_.size(), 0});
  std::vector<Run> merged;
  for (const Run& run : runs_) {
    const Marks both = run.marks | marks;
    if (!merged.empty() && merged.back().marks == both) merged.back().end = run.end;
    else merged.push_back({run.end, both});
  }
  runs_ = std::move(merged);
}

}  // namespace tutti::jinja
