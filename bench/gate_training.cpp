// Losses, layers with their gradients, and optimizer steps.
#include "bench/gate_programs.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/convolution.h"
#include "tutti/ops/diagonal.h"
#include "tutti/ops/embedding.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/layer_norm.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/optimizer_step.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/where.h"

namespace tutti::bench {
namespace {

Tensor label_smoothed(const Tensors& in) {
  const Tensor scores = log_softmax(in[0], -1);
  return neg(add(mul(mean(scores), 0.1), mul(mean(gather(scores, 1, in[1])), 0.9)));
}

Tensor contrastive(const Tensors& in) {
  const auto unit = [](const Tensor& x) { return truediv(x, sqrt(sum(mul(x, x), {.dims = {1}, .keepdim = true}))); };
  const Tensor scores = mul(matmul(unit(in[0]), transpose(unit(in[1]), 0, 1)), 10.0);
  return neg(mean(add(diagonal(log_softmax(scores, 1)), diagonal(log_softmax(scores, 0)))));
}

void add_losses(GateList& list) {
  list.add_with_gradients("huber loss [65536]", {gate_numbers({65536}), gate_numbers({65536})}, [](const Tensors& in) {
    const Tensor d = abs(sub(in[0], in[1]));
    return mean(where(lt(d, 1.0), mul(mul(d, d), 0.5), sub(d, 0.5)));
  });
  list.add_with_gradients("cross entropy by hand [256, 1000]",
                          {gate_numbers({256, 1000}), gate_indices({256, 1}, 1000)},
                          [](const Tensors& in) { return neg(mean(gather(log_softmax(in[0], -1), 1, in[1]))); });
  list.add_with_gradients("label smoothing [256, 1000]", {gate_numbers({256, 1000}), gate_indices({256, 1}, 1000)},
                          label_smoothed);
  list.add_with_gradients("focal loss [4096]", {gate_numbers({4096}), gate_numbers({4096})}, [](const Tensors& in) {
    const Tensor p = sigmoid(in[0]), rest = sub(1.0, p);
    return neg(mean(mul(mul(rest, rest), mul(log(add(p, 1e-6)), sigmoid(in[1])))));
  });
  list.add_with_gradients("contrastive loss [64, 128]", {gate_numbers({64, 128}), gate_numbers({64, 128})},
                          contrastive);
  list.add_with_gradients("variational bound [64, 32]",
                          {gate_numbers({64, 32}), gate_numbers({64, 32}), gate_numbers({64, 32})},
                          [](const Tensors& in) {
                            const Tensor z = add(in[0], mul(exp(mul(in[1], 0.5)), in[2]));
                            const Tensor divergence = sub(sub(add(exp(in[1]), mul(in[0], in[0])), in[1]), 1.0);
                            return add(mean(mul(z, z)), mul(mean(divergence), 0.5));
                          });
}

void add_layers(GateList& list) {
  list.add_with_gradients(
      "three layers [32, 64]",
      {gate_numbers({32, 64}), gate_weight({128, 64}), gate_weight({128, 128}), gate_weight({10, 128})},
      [](const Tensors& in) {
        return mean(log_softmax(linear(relu(linear(relu(linear(in[0], in[1])), in[2])), in[3]), -1));
      });
  list.add_with_gradients(
      "gated layer [128, 256]",
      {gate_numbers({128, 256}), gate_weight({768, 256}), gate_weight({768, 256}), gate_weight({256, 768})},
      [](const Tensors& in) { return mean(linear(mul(silu(linear(in[0], in[1])), linear(in[0], in[2])), in[3])); });
  list.add_with_gradients("layer_norm, gelu [512, 512]", {gate_numbers({512, 512}), gate_numbers({512})},
                          [](const Tensors& in) { return mean(gelu(layer_norm(in[0], in[1], in[1]))); });
  list.add_with_gradients("softmax of gelu [512, 512]", {gate_numbers({512, 512})}, [](const Tensors& in) {
    const Tensor y = softmax(gelu(in[0]), -1);
    return mean(mul(y, y));
  });
  list.add_with_gradients("rms_norm by hand [512, 512]", {gate_numbers({512, 512}), gate_numbers({512})},
                          [](const Tensors& in) {
                            return mean(mul(mul(in[0], rsqrt(add(mean(mul(in[0], in[0]), -1, true), 1e-6))), in[1]));
                          });
  list.add_with_gradients("sdpa [2, 4, 64, 32]",
                          {gate_numbers({2, 4, 64, 32}), gate_numbers({2, 4, 64, 32}), gate_numbers({2, 4, 64, 32})},
                          [](const Tensors& in) { return mean(sdpa(in[0], in[1], in[2], {.causal = true})); });
  list.add_with_gradients("conv2d, relu [2, 16, 16, 16]", {gate_numbers({2, 16, 16, 16}), gate_weight({16, 16, 3, 3})},
                          [](const Tensors& in) { return mean(relu(conv2d(in[0], in[1], {}, {.padding = {1}}))); });
  list.add_with_gradients("embedding, layer [256]",
                          {gate_indices({256}, 500), gate_numbers({500, 64}), gate_weight({64, 64})},
                          [](const Tensors& in) { return mean(tanh(linear(embedding(in[1], in[0]), in[2]))); });
}

// Parameters of many sizes with their gradients and two moments each.
Tensors parameters(int count, int states) {
  Tensors all;
  for (int i = 0; i < count; ++i) {
    const Extents sizes = i % 3 == 0 ? Extents{64} : i % 3 == 1 ? Extents{32, 64} : Extents{7, 5};
    for (int s = 0; s < states; ++s)
      all.push_back(s == 3 ? mul(gate_numbers(sizes), gate_numbers(sizes)) : gate_numbers(sizes));
  }
  return all;
}

void add_steps(GateList& list) {
  list.add("SGD of 50 parameters", parameters(50, 2), [](const Tensors& in) {
    for (size_t i = 0; i < in.size(); i += 2) sub_(in[i], mul(in[i + 1], 1e-9));
    return Tensors{};
  });
  list.add("AdamW of 300 parameters", parameters(300, 4), [](const Tensors& in) {
    for (size_t i = 0; i < in.size(); i += 4)
      adamw_step_(in[i], in[i + 1], in[i + 2], in[i + 3], {.lr = 1e-9, .step = 5});
    return Tensors{};
  });
  list.add("norm of 100 gradients", parameters(100, 1), [](const Tensors& in) {
    Tensor squares = sum(mul(in[0], in[0]));
    for (size_t i = 1; i < in.size(); ++i) squares = add(squares, sum(mul(in[i], in[i])));
    return Tensors{sqrt(squares)};
  });
  list.add("moving average of 100 parameters", parameters(100, 2), [](const Tensors& in) {
    for (size_t i = 0; i < in.size(); i += 2) add_(mul_(in[i], 0.999), mul(in[i + 1], 0.001));
    return Tensors{};
  });
}

}  // namespace

void add_training_programs(GateList& list) {
  add_losses(list);
  add_layers(list);
  add_steps(list);
}

}  // namespace tutti::bench
