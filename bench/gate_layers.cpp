// Layers as the code of published models writes them, forward.
#include "bench/gate_programs.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/convolution.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/embedding.h"
#include "tutti/ops/layer_norm.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/topk.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/where.h"

namespace tutti::bench {
namespace {

Tensor heads_of(const Tensor& x, int64_t heads) {
  return transpose(unflatten(x, -1, {heads, floordiv(x.size(-1), heads)}), 1, 2);
}
Tensor joined(const Tensor& x) { return flatten(transpose(x, 1, 2), 2, 3); }

// Scores, mask, softmax and values in single ops, as code written before fused attention does.
Tensor attention_by_hand(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
  const Tensor scores = mul(matmul(q, transpose(k, -2, -1)), 0.125);
  return matmul(softmax(masked_fill(scores, mask, -1e9), -1), v);
}

// in: x, norm, wq, wk, wv, wo, norm, gate, up, down
Tensor llama_block(const Tensors& in) {
  const Tensor h = rms_norm(in[0], in[1]);
  const Tensor q = heads_of(linear(h, in[2]), 4), k = heads_of(linear(h, in[3]), 4), v = heads_of(linear(h, in[4]), 4);
  const Tensor x = add(in[0], linear(joined(sdpa(q, k, v, {.causal = true})), in[5]));
  const Tensor g = rms_norm(x, in[6]);
  return add(x, linear(mul(silu(linear(g, in[7])), linear(g, in[8])), in[9]));
}

// in: x, norm, bias, wqkv, wo, norm, bias, up, down
Tensor gpt2_block(const Tensors& in) {
  const Tensor qkv = linear(layer_norm(in[0], in[1], in[2]), in[3]);
  const Tensors parts = chunk(qkv, 3, -1);
  const Tensor mixed = sdpa(heads_of(parts[0], 4), heads_of(parts[1], 4), heads_of(parts[2], 4), {.causal = true});
  const Tensor x = add(in[0], linear(joined(mixed), in[4]));
  return add(x, linear(gelu(linear(layer_norm(x, in[5], in[6]), in[7]), GeluForm::tanh), in[8]));
}

// in: x, h, c, wx [4H, X], wh [4H, H], bias
Tensors lstm_cell(const Tensors& in) {
  const Tensors gates = chunk(add(add(linear(in[0], in[3]), linear(in[1], in[4])), in[5]), 4, 1);
  const Tensor c = add(mul(sigmoid(gates[1]), in[2]), mul(sigmoid(gates[0]), tanh(gates[2])));
  return {mul(sigmoid(gates[3]), tanh(c)), c};
}

// in: x, h, wx [3H, X], wh [3H, H]
Tensor gru_cell(const Tensors& in) {
  const Tensors x = chunk(linear(in[0], in[2]), 3, 1), h = chunk(linear(in[1], in[3]), 3, 1);
  const Tensor reset = sigmoid(add(x[0], h[0])), update = sigmoid(add(x[1], h[1]));
  const Tensor next = tanh(add(x[2], mul(reset, h[2])));
  return add(next, mul(update, sub(in[1], next)));
}

// in: x [B, C, H, W], weight, scale [C, 1, 1], shift, weight, scale, shift
Tensor resnet_block(const Tensors& in) {
  const auto normed = [](const Tensor& x, const Tensor& scale, const Tensor& shift) {
    return add(mul(x, scale), shift);
  };
  const Tensor h = relu(normed(conv2d(in[0], in[1], {}, {.padding = {1}}), in[2], in[3]));
  return relu(add(normed(conv2d(h, in[4], {}, {.padding = {1}}), in[5], in[6]), in[0]));
}

Tensors block_weights(int64_t dim, bool gated) {
  const Tensor norm = gate_numbers({dim});
  if (gated)
    return {norm,
            gate_weight({dim, dim}),
            gate_weight({dim, dim}),
            gate_weight({dim, dim}),
            gate_weight({dim, dim}),
            norm,
            gate_weight({3 * dim, dim}),
            gate_weight({3 * dim, dim}),
            gate_weight({dim, 3 * dim})};
  return {norm, norm, gate_weight({3 * dim, dim}), gate_weight({dim, dim}),
          norm, norm, gate_weight({4 * dim, dim}), gate_weight({dim, 4 * dim})};
}

Tensors with(const Tensor& x, const Tensors& rest) {
  Tensors all{x};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

void add_products(GateList& list) {
  for (const int64_t n : {8, 32, 128, 512}) {
    list.add(fmt::format("matmul, relu {0} x {0}", n), {gate_numbers({n, n}), gate_numbers({n, n})},
             [](const Tensors& in) { return Tensors{relu(matmul(in[0], in[1]))}; });
    list.add(fmt::format("linear, bias, gelu [{0}, 256]", n),
             {gate_numbers({n, 256}), gate_weight({256, 256}), gate_numbers({256})},
             [](const Tensors& in) { return Tensors{gelu(add(linear(in[0], in[1]), in[2]))}; });
  }
  list.add("three layers [32, 64]",
           {gate_numbers({32, 64}), gate_weight({128, 64}), gate_weight({128, 128}), gate_weight({10, 128})},
           [](const Tensors& in) {
             return Tensors{log_softmax(linear(relu(linear(relu(linear(in[0], in[1])), in[2])), in[3]), -1)};
           });
  list.add(
      "gated layer [128, 256]",
      {gate_numbers({128, 256}), gate_weight({768, 256}), gate_weight({768, 256}), gate_weight({256, 768})},
      [](const Tensors& in) { return Tensors{linear(mul(silu(linear(in[0], in[1])), linear(in[0], in[2])), in[3])}; });
  list.add("batched products, scaled [16, 32, 32]", {gate_numbers({16, 32, 32}), gate_numbers({16, 32, 32})},
           [](const Tensors& in) { return Tensors{mul(bmm(in[0], in[1]), 0.5)}; });
}

}  // namespace

void add_layer_programs(GateList& list) {
  add_products(list);
  const Tensor q = gate_numbers({2, 4, 128, 64}), k = gate_numbers({2, 4, 128, 64}), v = gate_numbers({2, 4, 128, 64});
  list.add("attention by hand [2, 4, 128, 64]", {q, k, v},
           [](const Tensors& in) { return Tensors{attention_by_hand(in[0], in[1], in[2], triu_mask(128, 128, 1))}; });
  list.add("sdpa of scaled queries [2, 4, 128, 64]", {q, k, v},
           [](const Tensors& in) { return Tensors{sdpa(mul(in[0], 0.5), in[1], in[2], {.causal = true})}; });
  for (const int64_t tokens : {1, 16, 128}) {
    list.add(fmt::format("Llama block [2, {}, 256]", tokens),
             with(gate_numbers({2, tokens, 256}), block_weights(256, true)),
             [](const Tensors& in) { return Tensors{llama_block(in)}; });
    list.add(fmt::format("GPT-2 block [2, {}, 256]", tokens),
             with(gate_numbers({2, tokens, 256}), block_weights(256, false)),
             [](const Tensors& in) { return Tensors{gpt2_block(in)}; });
  }
  list.add("BERT embeddings [8, 64]",
           {gate_indices({8, 64}, 1000), gate_indices({8, 64}, 2), gate_numbers({1000, 128}), gate_numbers({64, 128}),
            gate_numbers({2, 128}), gate_numbers({128})},
           [](const Tensors& in) {
             const Tensor x = add(add(embedding(in[2], in[0]), embedding(in[4], in[1])), in[3]);
             return Tensors{layer_norm(x, in[5], in[5], 1e-12)};
           });
  list.add("rotary embedding by hand [2, 128, 4, 64]",
           {gate_numbers({2, 128, 4, 64}), gate_numbers({128, 1, 64}), gate_numbers({128, 1, 64})},
           [](const Tensors& in) {
             const Tensors halves = chunk(in[0], 2, -1);
             return Tensors{add(mul(in[0], in[1]), mul(cat({neg(halves[1]), halves[0]}, -1), in[2]))};
           });
  list.add("LSTM cell [32, 128]",
           {gate_numbers({32, 128}), gate_numbers({32, 128}), gate_numbers({32, 128}), gate_weight({512, 128}),
            gate_weight({512, 128}), gate_numbers({512})},
           lstm_cell);
  list.add("GRU cell [32, 128]",
           {gate_numbers({32, 128}), gate_numbers({32, 128}), gate_weight({384, 128}), gate_weight({384, 128})},
           [](const Tensors& in) { return Tensors{gru_cell(in)}; });
  list.add("ResNet block [2, 32, 28, 28]",
           {gate_numbers({2, 32, 28, 28}), gate_weight({32, 32, 3, 3}), gate_numbers({32, 1, 1}),
            gate_numbers({32, 1, 1}), gate_weight({32, 32, 3, 3}), gate_numbers({32, 1, 1}), gate_numbers({32, 1, 1})},
           [](const Tensors& in) { return Tensors{resnet_block(in)}; });
  list.add("group_norm by hand [4, 32, 16, 16]", {gate_numbers({4, 32, 16, 16}), gate_numbers({32, 1, 1})},
           [](const Tensors& in) {
             const Tensor x = reshape(in[0], {4, 8, 1024}), centered = sub(x, mean(x, -1, true));
             const Tensor normed = mul(centered, rsqrt(add(mean(mul(centered, centered), -1, true), 1e-5)));
             return Tensors{silu(mul(reshape(normed, {4, 32, 16, 16}), in[1]))};
           });
  list.add("mixture's gate [256, 64]", {gate_numbers({256, 128}), gate_weight({64, 128})}, [](const Tensors& in) {
    const auto [values, indices] = topk(softmax(linear(in[0], in[1]), -1), 4);
    return Tensors{truediv(values, sum(values, {.dims = {-1}, .keepdim = true})), indices};
  });
  list.add("timestep embedding [64]", {gate_numbers({64, 1}), gate_numbers({1, 128})}, [](const Tensors& in) {
    const Tensor angles = mul(in[0], exp(in[1]));
    return Tensors{cat({cos(angles), sin(angles)}, 1)};
  });
}

}  // namespace tutti::bench
