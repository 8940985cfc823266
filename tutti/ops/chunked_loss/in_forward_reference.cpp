#include "tutti/ops/chunked_loss/in_forward.h"
#include "tutti/ops/chunked_loss/reference.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::chunked_loss {
namespace {

// Loss of the rows, or undefined, and gradients for the cotangents in `column`.
void compute(const OpCall& call, const Tensor& column, const Tensor& loss, std::span<const Tensor> gradients) {
  std::vector<Tensor> rows = rows_of_loss(call);
  if (loss.defined()) rows[kRowLoss] = loss;
  reference_loss(call, rows);
  const std::vector<Tensor> inputs = inputs_of_gradients(call, rows[kRowStatistics], column);
  reference_gradients({call.op, inputs, call.attrs}, gradients);
}

}  // namespace

void reference_loss_with_gradients(const OpCall& call, std::span<const Tensor> outputs) {
  compute(call, call[kGuess], outputs[0], outputs.subspan(1));
}

void reference_taken_gradients(const OpCall& call, std::span<const Tensor> outputs) {
  compute(call, call[kCotangent], {}, outputs);
}

// The samples of gradients of labels, with their cotangents as the guess; classes are never cut.
std::vector<Sample> samples_with_gradients() {
  std::vector<Sample> list;
  for (Sample& s : samples(SampleOf::gradients)) {
    if (s.inputs[kMix].extents()[1] > 0) continue;
    const Tensor guess = s.inputs[kGradLoss];
    s.inputs.resize(kForwardInputs);
    s.inputs.push_back(guess);
    LossAttrs attrs = s.attrs.as<LossAttrs>();
    attrs.chunk_classes = 0;
    s.attrs = Attrs::of(attrs);
    list.push_back(s);
  }
  return list;
}

// With a guess that is right, one that is not, whose gradients are none, and without gradients.
std::vector<Sample> samples_of_taken() {
  std::vector<Sample> list;
  for (const Sample& s : samples_with_gradients()) {
    for (const char* guess : {"right", "wrong", "absent"}) {
      Sample taken = s;
      taken.name += fmt::format("_{}", guess);
      const bool right = guess[0] == 'r', absent = guess[0] == 'a';
      const DType dtype = taken.inputs[kGuess].dtype();
      taken.inputs.push_back(right ? taken.inputs[kGuess]
                                   : facets::sample_tensor(9, taken.inputs[kGuess].extents(), dtype));
      const auto attrs = taken.attrs.as<LossAttrs>();
      const Tensor &x = taken.inputs[kX], &w = taken.inputs[kWeight], &b = taken.inputs[kBias];
      const bool of[] = {!absent && (attrs.needs & kNeedX) != 0, !absent && (attrs.needs & kNeedWeight) != 0,
                         !absent && (attrs.needs & kNeedBias) != 0};
      const Tensor given[] = {facets::sample_tensor(10, of[0] ? x.extents() : Extents{0, 0}, x.dtype()),
                              facets::sample_tensor(11, of[1] ? w.extents() : Extents{0, 0}, dtype),
                              facets::sample_tensor(12, of[2] ? b.extents() : Extents{0}, dtype)};
      const OpDef none{.name = "", .num_inputs = kInForwardInputs, .infer = nullptr};
      if (right)
        reference_loss_with_gradients(
            {none, s.inputs, s.attrs},
            std::vector<Tensor>{Tensor::empty({x.extents()[0], 1}, dtype), given[0], given[1], given[2]});
      for (const Tensor& t : given) taken.inputs.push_back(t);
      list.push_back(taken);
    }
  }
  return list;
}

}  // namespace tutti::chunked_loss
