// What a trace does where the function reads elements.
#include <algorithm>
#include <functional>

#include "tutti/graph/trace.h"

namespace tutti::graph {
namespace {

// What is read chooses what was compiled; whole arrays would choose something new at each call.
constexpr int64_t kMaxReadBytes = 4096;

// The function may write to what it gets; the answer chooses what runs at later calls.
Tensor copy_of(const Tensor& answer) {
  const Tensor copy = Tensor::empty(answer.extents(), answer.dtype());
  copy_elements(copy, answer);
  return copy;
}

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
    throw CaptureError(12, fmt::format("'{}' reads the elements of a tensor {} that it holds while it is traced{}{}: "
                                       "later calls would go on with what they "
                                       "were then. Pass the value as an argument, or let the function run in segments "
                                       "(on_break = OnBreak::segment)",
                                       name(), describe(t), line.empty() ? "" : ", at ", line));
  }
  if (stopped_at_read()) throw ReadReached{};
  if (forward_has_ended_) {
    throw CaptureError(12, fmt::format("'{}' reads elements in what its backward computes again, such as a "
                                       "checkpointed region; read them outside of it",
                                       name()));
  }
  const Value value = value_of(t);
  if (!rebound_.empty()) {
    throw CaptureError(
        12, fmt::format("'{}' reads elements after an op gave a tensor other memory, or took it back; read them before",
                        name()));
  }
  if (t.nbytes() > kMaxReadBytes) {
    throw CaptureError(12, fmt::format("'{}' reads {} bytes of {}; what is read chooses what runs next, and at most {} "
                                       "bytes can. Reduce it to what the "
                                       "host needs to know, or return the tensor",
                                       name(), t.nbytes(), describe(t), kMaxReadBytes));
  }
  SegmentMark mark{};
  for (const Node& node : graph_.nodes) mark.ops = mark.ops * 31 + std::hash<const void*>()(node.op);
  for (size_t b = 0; b < graph_.buffers.size(); ++b) {
    const bool is_named = b < state_->tensors_on.size() && state_->tensors_on[b] > 0;
    if (!is_named || graph_.buffers[b].kind != Buffer::Kind::made) continue;
    mark.carried.push_back(static_cast<int32_t>(b));
    mark.ops = mark.ops * 31 + static_cast<size_t>(graph_.buffers[b].nbytes);
  }
  segments_.push_back(std::move(mark));
  if (segments_.size() <= answers_.size()) {
    begin_segment();
    given_answers_.push_back(copy_of(answers_[segments_.size() - 1]));
    return given_answers_.back();
  }
  graph_.results = {value};
  for (const int32_t b : segments_.back().carried) {
    const Buffer& buffer = graph_.buffers[static_cast<size_t>(b)];
    graph_.results.push_back(
        {.buffer = b, .version = buffer.versions - 1, .dtype = DType::u8, .sizes = {buffer.nbytes}, .strides = {1}});
  }
  throw ReadReached{};
}

Tensor Trace::read(const std::shared_ptr<const TensorSlot>& slot) {
  if (outer_ != nullptr) return outer_->read(slot);
  const auto known = std::find_if(slots_.begin(), slots_.end(), [&](const SlotRead& r) { return r.slot == slot; });
  Tensor held = slot->known();
  if (!held.defined()) held = slot->held();  // says why there is none
  if (known == slots_.end()) {
    slots_.push_back({slot, held});
  } else if (!known->found.is_same(held)) {
    throw CaptureError(37, fmt::format("'{}' replaces the tensor of {}, which it read before; replace it between calls",
                                       name(), slot->description()));
  }
  // The copy is made before the call, when the graph's writes are yet to come.
  if (const Tensor original = slot->copied_from(); original.defined()) {
    const auto buffer = given_.find(original.storage().get());
    if (buffer != given_.end() && graph_.buffers[static_cast<size_t>(buffer->second)].versions > 1)
      throw CaptureError(38, fmt::format("'{}' writes the master of {} and then reads its copy in {}, which is made "
                                         "before the call and would hold the values of "
                                         "before; compile what writes parameters as a function of its own",
                                         name(), slot->description(), name_of(held.dtype())));
  }
  return held;
}

// Op by op it may be the tensor that was read, with its memory and its history.
void Trace::refuse_answer(const Tensor& t) const {
  const auto is_it = [&](const Tensor& answer) { return answer.storage().get() == t.storage().get(); };
  if (std::none_of(given_answers_.begin(), given_answers_.end(), is_it)) return;
  throw CaptureError(12, fmt::format("'{}' uses what it read of a tensor, {}, in an op or as a result; op by op it may "
                                     "be the tensor itself. Use that, or "
                                     "numbers",
                                     name(), describe(t)));
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
