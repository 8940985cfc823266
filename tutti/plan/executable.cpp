#include "tutti/plan/executable_frame.h"

#include "tutti/plan/node_call.h"
#include "tutti/runtime/boundary.h"
#include "tutti/runtime/fp_environment.h"
#include "tutti/tensor/host_read.h"
#include "tutti/tensor/lent_memory.h"

namespace tutti::graph {

// A frame for the time of one call.
class Executable::FrameLoan {
 public:
  explicit FrameLoan(const Executable& owner) : owner_(owner) {
    {
      std::lock_guard lock(owner.frames_mutex_);
      if (!owner.frames_.empty()) {
        frame_ = std::move(owner.frames_.back());
        owner.frames_.pop_back();
      }
    }
    if (!frame_) frame_ = owner.make_frame();
  }
  // A frame that a failed call leaves may still be written by a collective under way; it is not lent again.
  ~FrameLoan() {
    if (!completed) return;
    for (size_t b = 0; b < frame_->memory.size(); ++b) {
      if (owner_.arena_offsets_[b] < 0) frame_->memory[b] = {};
    }
    for (Frame::Call& call : frame_->calls) call.inputs.clear(), call.outputs.clear();
    std::lock_guard lock(owner_.frames_mutex_);
    owner_.frames_.push_back(std::move(frame_));
  }
  FrameLoan(const FrameLoan&) = delete;
  FrameLoan& operator=(const FrameLoan&) = delete;
  Frame& operator*() { return *frame_; }
  bool completed = false;

 private:
  const Executable& owner_;
  std::unique_ptr<Frame> frame_;
};

Executable::~Executable() = default;

std::unique_ptr<Executable::Frame> Executable::make_frame() const {
  auto frame = std::make_unique<Frame>();
  frame->arena = Tensor::empty({arena_bytes_}, DType::u8);
  frame->bases.resize(graph_.buffers.size(), nullptr);
  frame->memory.resize(graph_.buffers.size());
  for (size_t b = 0; b < graph_.buffers.size(); ++b) {
    if (arena_offsets_[b] < 0) continue;
    frame->bases[b] = static_cast<char*>(frame->arena.raw_data()) + arena_offsets_[b];
    // A storage of its own: what waits for a storage waits for this buffer only.
    frame->memory[b].storage =
        StorageRef::adopt(Storage::wrap(frame->bases[b], graph_.buffers[b].nbytes, kCpu, [arena = frame->arena] {}));
  }
  frame->calls.resize(steps_.size());
  for (size_t s = 0; s < steps_.size(); ++s) {
    const auto* step = std::get_if<CallStep>(&steps_[s]);
    if (step == nullptr) continue;
    const auto keep = [&](const std::vector<Value>& values, std::vector<Tensor>& tensors) {
      for (const Value& v : values)
        tensors.push_back(arena_offsets_[static_cast<size_t>(v.buffer)] >= 0 ? tensor_of(v, *frame) : Tensor{});
    };
    keep(step->inputs, frame->calls[s].kept_inputs);
    if (step->prologue) frame->calls[s].kept_inputs[0] = stand_ins({step->inputs.data(), 1}, graph_)[0];
    keep(step->outputs, frame->calls[s].kept_outputs);
  }
  return frame;
}

Tensor Executable::tensor_of(const Value& v, const Frame& frame) const {
  const GivenMemory& memory = frame.memory[static_cast<size_t>(v.buffer)];
  return Tensor::over(memory.storage, v.sizes, v.strides, memory.first_byte / itemsize(v.dtype) + v.offset, v.dtype);
}

std::vector<Tensor> Executable::run(std::span<const GivenMemory> given, std::span<const Tensor> into,
                                    std::span<const RandomKey> keys) const {
  const FpEnvironmentScope environment;
  TraceContext context = TraceContext::current();
  context.graph_key = graph_key_;
  const TraceContextScope scope(context);
  FrameLoan loan(*this);
  Frame& frame = *loan;
  frame.keys = keys;
  bool is_lent = false;
  for (size_t b = 0; b < graph_.buffers.size(); ++b) {
    const Buffer& buffer = graph_.buffers[b];
    if (buffer.kind == Buffer::Kind::given) {
      frame.memory[b] = given[static_cast<size_t>(buffer.source)];
      is_lent = is_lent || frame.memory[b].lender != nullptr;
      if (resizes_ || frame.memory[b].lender != nullptr) find_memory(b, frame);
      else frame.bases[b] = static_cast<char*>(frame.memory[b].storage->data()) + frame.memory[b].first_byte;
    } else if (is_result_[b]) {
      const Tensor* target =
          into.empty() || only_result_[b] < 0 ? nullptr : &into[static_cast<size_t>(only_result_[b])];
      if (target != nullptr && target->defined())
        frame.memory[b] = {target->storage(), target->offset() * itemsize(target->dtype())};
      else if (comes_later_[b]) frame.memory[b] = {};
      else frame.memory[b] = {StorageRef::adopt(Storage::allocate(buffer.nbytes, buffer.device)), 0};
      if (frame.memory[b].storage)
        frame.bases[b] = static_cast<char*>(frame.memory[b].storage->data()) + frame.memory[b].first_byte;
    }
  }
  const auto wait = [&](const std::vector<Wait>& list) {
    for (const Wait& w : list) {
      Tensor& output = frame.calls[static_cast<size_t>(w.step)].outputs[static_cast<size_t>(w.output)];
      if (!output.defined()) continue;
      before_host_read(output);
      output = {};  // what reads it has the buffer
    }
  };
  const std::shared_ptr<const Loans> loans = is_lent ? loans_of(frame) : nullptr;
  const auto borrow = [&](size_t s) {
    if (loans == nullptr) return;
    for (MemoryLender* lender : loans->steps[s].lend) lender->lend();
    for (const int32_t b : loans->steps[s].find) find_memory(static_cast<size_t>(b), frame);
  };
  const auto give_back = [&](size_t s) {
    if (loans == nullptr) return;
    for (const auto& [lender, again] : loans->steps[s].take_back) lender->take_back(again);
  };
  for (size_t s = 0; s < steps_.size(); ++s) {
    wait(waits_[s]);
    borrow(s);
    for (const int32_t b : allocates_[s]) {
      const Buffer& buffer = graph_.buffers[static_cast<size_t>(b)];
      if (comes_later_[static_cast<size_t>(b)] && frame.memory[static_cast<size_t>(b)].storage) continue;  // of `into`
      frame.memory[static_cast<size_t>(b)] = {StorageRef::adopt(Storage::allocate(buffer.nbytes, buffer.device)), 0};
      frame.bases[static_cast<size_t>(b)] = static_cast<char*>(frame.memory[static_cast<size_t>(b)].storage->data());
    }
    if (resizes_) refuse_released(steps_[s], frame);
    run_step(s, frame);
    Boundary::pass();
    if (resizes_) find_resized(steps_[s], frame);
    for (const int32_t b : lets_go_[s]) frame.memory[static_cast<size_t>(b)] = {};
    give_back(s);
  }
  wait(waits_.back());
  give_back(steps_.size());
  std::vector<Tensor> results;
  loan.completed = true;
  for (const Value& v : graph_.results) results.push_back(v.buffer < 0 ? Tensor{} : tensor_of(v, frame));
  return results;
}

std::string Executable::to_string() const { return graph::to_string(steps_); }

}  // namespace tutti::graph
