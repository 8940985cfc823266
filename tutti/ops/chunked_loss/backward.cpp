#include "tutti/ops/chunked_loss/backward.h"

#include <optional>

#include "tutti/ops/chunked_loss/chunk.h"
#include "tutti/ops/chunked_loss/plan.h"
#include "tutti/ops/engine/kernel_trace.h"
#include "tutti/ops/sum_to.h"
#include "tutti/runtime/allocator.h"

namespace tutti::chunked_loss {
namespace {

using codegen::ContractionTree;

// Sums of rows over parts that come in the order of a tree. The first grows in the result itself where that has the dtype of
// sums, and takes the rest once where not; one part alone goes straight to the result.
class PendingSums {
 public:
  // Of `rows` rows like those of `result`, over `parts`.
  PendingSums(const Tensor& result, int64_t rows, const std::vector<TreePart>& parts, DType dtype) : straight_(parts.size() == 1) {
    const int slots = slots_of(parts), in_result = result.dtype() == dtype;
    if (straight_ || slots <= in_result) return;
    Extents sizes = result.extents();
    sizes[0] = rows * (slots - in_result);
    room_ = Tensor::empty(sizes, dtype);
    first_ = in_result;
    rows_ = rows;
  }

  // Where the value of a part goes; `result` are the rows it counts for, which begin at row `begin` of these sums.
  Tensor slot(const Tensor& result, int64_t begin, int pending) const {
    if (straight_ || pending < first_) return result;
    return rows_of(room_, {(pending - first_) * rows_ + begin, result.extents()[0]});
  }
  // The value of `part` is in its slot.
  void join(const Tensor& result, int64_t begin, const TreePart& part, bool is_last) const {
    for (int k = part.pending; k > part.pending - part.merges; --k) {
      const Tensor left = slot(result, begin, k - 1);
      run_step(kAddParts, {left, slot(result, begin, k)}, left);
    }
    if (is_last && !straight_ && first_ == 0) run_step(kConvert, {slot(result, begin, 0)}, result);
  }

 private:
  bool straight_;
  int first_ = 1;  // slots from here on are in room_
  int64_t rows_ = 0;
  Tensor room_;
};

class Gradients {
 public:
  Gradients(const OpCall& call, std::span<const Tensor> outputs)
      : call_(call), x_(outputs[0]), weight_(outputs[1]), bias_(outputs[2]), dtype_(computes_in(call)) {}

  void with_classes_outside(const ChunkPlan& plan, bool together) const {
    LogitChunk chunk(call_, plan.chunk_rows(), plan.chunk_classes());
    const auto sums_of = [&](const Tensor& result, bool needed) {
      return needed ? std::optional<PendingSums>(std::in_place, result, plan.chunk_classes(), plan.rows, dtype_) : std::nullopt;
    };
    const auto weight_sums = sums_of(weight_, needs(call_, kNeedWeight)), bias_sums = sums_of(bias_, needs(call_, kNeedBias));
    std::optional<PendingSums> x_sums;
    if (together) x_sums.emplace(x_, rows_of(call_), plan.classes, dtype_);
    for (const TreePart& classes : plan.classes) {
      for (const TreePart& rows : plan.rows) {
        const Tensor d = chunk.compute(rows, classes);
        chunk.to_gradient();
        if (together) add_x(*x_sums, d, rows, classes, rows.begin, &classes == &plan.classes.back());
        if (weight_sums) add_weight(*weight_sums, d, rows, classes);
        if (bias_sums) add_bias(*bias_sums, d, rows, classes);
      }
    }
  }

  void with_rows_outside(const ChunkPlan& plan) const {
    LogitChunk chunk(call_, plan.chunk_rows(), plan.chunk_classes());
    const PendingSums sums(x_, plan.chunk_rows(), plan.classes, dtype_);
    for (const TreePart& rows : plan.rows) {
      for (const TreePart& classes : plan.classes) {
        const Tensor d = chunk.compute(rows, classes);
        chunk.to_gradient();
        add_x(sums, d, rows, classes, 0, &classes == &plan.classes.back());
      }
    }
  }

 private:
  // d w over the classes of the chunk.
  void add_x(const PendingSums& sums, const Tensor& d, const TreePart& rows, const TreePart& classes, int64_t begin, bool is_last) const {
    const Tensor result = rows_of(x_, rows), to = sums.slot(result, begin, classes.pending);
    product("input gradient", rows.count, features_of(call_), classes.count, operand(d), operand(rows_of(call_[kWeight], classes)), to,
            ContractionTree::halving(classes.count));
    sums.join(result, begin, classes, is_last);
  }
  // d^T x over the rows of the chunk, tokens in their order (N3t).
  void add_weight(const PendingSums& sums, const Tensor& d, const TreePart& rows, const TreePart& classes) const {
    const Tensor result = rows_of(weight_, classes), to = sums.slot(result, 0, rows.pending);
    product("weight gradient", classes.count, features_of(call_), rows.count, transposed(d), operand(rows_of(call_[kX], rows)), to,
            ContractionTree::halving(rows.count, static_cast<int32_t>(token_grain())));
    sums.join(result, 0, rows, false);
  }
  void add_bias(const PendingSums& sums, const Tensor& d, const TreePart& rows, const TreePart& classes) const {
    const Tensor result = rows_of(bias_, classes);
    run_step(kSumRows, {d}, sums.slot(result, 0, rows.pending));
    sums.join(result, 0, rows, false);
  }

  const OpCall& call_;
  const Tensor &x_, &weight_, &bias_;
  const DType dtype_;  // of sums
};

}  // namespace

void kernel_gradients(const OpCall& call, std::span<const Tensor> outputs) {
  const MemoryCategoryScope category(MemoryCategory::workspace);
  const GradientPlan plan = plan_gradients(call);
  KernelTrace::note_extern(call.op, [&] {
    std::string text = plan.together ? "all gradients: " : "";
    if (!plan.classes_outside.rows.empty()) text += plan.classes_outside.describe();
    if (!plan.rows_outside.rows.empty()) text += (text.empty() ? "" : "; input apart: ") + plan.rows_outside.describe();
    return text;
  });
  const Gradients gradients(call, outputs);
  if (!plan.classes_outside.rows.empty()) gradients.with_classes_outside(plan.classes_outside, plan.together);
  if (!plan.rows_outside.rows.empty()) gradients.with_rows_outside(plan.rows_outside);
}

}  // namespace tutti::chunked_loss
