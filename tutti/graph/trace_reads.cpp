// What a trace does where the function reads elements.
#include <functional>

#include "tutti/graph/trace.h"

namespace tutti::graph {
namespace {

// What is read chooses what was compiled; whole arrays would choose something new at each call.
constexpr int64_t kMaxReadBytes = 4096;

}  // namespace

void Trace::answer_reads(std::span<const Tensor> answers) {
  may_read_ = true;
  answers_.assign(answers.begin(), answers.end());
}

Tensor Trace::elements_of(const Tensor& t) {
  if (program_ != nullptr) program_->refuse("the function reads elements of a tensor");
  last_read_ = call_site();
  const StoragePlaceholder* placeholder = t.storage()->placeholder();
  if (!may_read_) {
    if (placeholder != nullptr) placeholder->refuse_data();
    const std::string line = user_line(last_read_);
    throw CaptureError(12, fmt::format("'{}' reads the elements of a tensor {} that it holds while it is traced{}{}: later calls would go on with what they "
                                       "were then. Pass the value as an argument, or let the function run in segments (on_break = OnBreak::segment)",
                                       name(), describe(t), line.empty() ? "" : ", at ", line));
  }
  if (stopped_at_read()) throw ReadReached{};
  const Value value = value_of(t);
  if (!rebound_.empty()) {
    throw CaptureError(12, fmt::format("'{}' reads elements after an op gave a tensor other memory, or took it back; read them before", name()));
  }
  if (t.nbytes() > kMaxReadBytes) {
    throw CaptureError(12, fmt::format("'{}' reads {} bytes of {}; what is read chooses what runs next, and at most {} bytes can. Reduce it to what the "
                                       "host needs to know, or return the tensor", name(), t.nbytes(), describe(t), kMaxReadBytes));
  }
  SegmentMark mark{};
  for (const Node& node : graph_.nodes) mark.ops = mark.ops * 31 + std::hash<const void*>()(node.op);
  for (size_t b = 0; b < graph_.buffers.size(); ++b) {
    const bool is_named = b < state_->tensors_on.size() && state_->tensors_on[b] > 0;
    if (is_named && graph_.buffers[b].kind == Buffer::Kind::made) mark.carried.push_back(static_cast<int32_t>(b));
  }
  segments_.push_back(std::move(mark));
  if (segments_.size() <= answers_.size()) {
    begin_segment();
    return answers_[segments_.size() - 1];
  }
  graph_.results = {value};
  for (const int32_t b : segments_.back().carried) {
    const Buffer& buffer = graph_.buffers[static_cast<size_t>(b)];
    graph_.results.push_back({.buffer = b, .version = buffer.versions - 1, .dtype = DType::u8, .sizes = {buffer.nbytes}, .strides = {1}});
  }
  throw ReadReached{};
}

// What was done is done: its buffers exist, as they were left.
void Trace::begin_segment() {
  graph_.nodes.clear();
  for (Buffer& buffer : graph_.buffers) buffer.versions = 1;
  for (const int32_t b : segments_.back().carried) {
    Buffer& buffer = graph_.buffers[static_cast<size_t>(b)];
    buffer.kind = Buffer::Kind::given;
    buffer.source = static_cast<int32_t>(sources_.size());
    sources_.push_back({Source::Kind::carried, carried_++, 0, 0});
  }
}

}  // namespace tutti::graph
