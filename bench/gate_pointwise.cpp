// Arithmetic, rows and moves of elements, small and large.
#include "bench/gate_programs.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/layer_norm.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/ops/scan.h"
#include "tutti/ops/scatter_add.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/where.h"

namespace tutti::bench {
namespace {

Tensor repeated(Tensor x, int times, const std::function<Tensor(const Tensor&)>& turn) {
  for (int i = 0; i < times; ++i) x = turn(x);
  return x;
}

// Ops of all kinds, one after the other.
Tensor mixed(Tensor x, int64_t ops) {
  for (int64_t i = 0; i < ops; ++i) {
    switch (i % 10) {
      case 0:
        x = add(x, 0.5);
        break;
      case 1:
        x = softmax(x, -1);
        break;
      case 2:
        x = mul(x, x);
        break;
      case 3:
        x = sub(x, mean(x, -1, true));
        break;
      case 4:
        x = gelu(x, GeluForm::tanh);
        break;
      case 5:
        x = transpose(x, 0, 1);
        break;
      case 6:
        x = rms_norm(x);
        break;
      case 7:
        x = add(x, sum(x, {.dims = {0}, .keepdim = true}));
        break;
      case 8:
        x = tanh(x);
        break;
      default:
        x = where(gt(x, 0.0), x, mul(x, 0.1));
        break;
    }
  }
  return x;
}

void add_of_size(GateList& list, const std::string& size, const Extents& sizes) {
  const Tensor x = gate_numbers(sizes), y = gate_numbers(sizes), row = gate_numbers({sizes.back()});
  const auto add_one = [&](const char* name, const std::function<Tensor(const Tensors&)>& run) {
    list.add(std::string(name) + " " + size, {x, y, row}, [run](const Tensors& in) { return Tensors{run(in)}; });
  };
  add_one("add", [](const Tensors& in) { return add(in[0], in[1]); });
  add_one("chain of 8", [](const Tensors& in) {
    return repeated(in[0], 4, [&](const Tensor& x) { return mul(add(x, in[1]), 0.5); });
  });
  add_one("bias, gelu", [](const Tensors& in) { return gelu(add(in[0], in[2]), GeluForm::tanh); });
  add_one("swiglu", [](const Tensors& in) { return mul(silu(in[0]), in[1]); });
  add_one("exp, log, tanh, erf", [](const Tensors& in) { return erf(tanh(log(add(exp(in[0]), 1.0)))); });
  add_one("softmax", [](const Tensors& in) { return softmax(in[0], -1); });
  add_one("scale, mask, softmax", [](const Tensors& in) {
    return softmax(masked_fill(mul(in[0], 0.125), tril_mask(in[0].size(0), in[0].size(1)), -1e9), -1);
  });
  add_one("softmax of gelu", [](const Tensors& in) { return softmax(gelu(in[0]), -1); });
  add_one("layer_norm", [](const Tensors& in) { return layer_norm(in[0], in[2], in[2]); });
  add_one("layer_norm by hand", [](const Tensors& in) {
    const Tensor centered = sub(in[0], mean(in[0], -1, true));
    return mul(mul(centered, rsqrt(add(mean(mul(centered, centered), -1, true), 1e-5))), in[2]);
  });
  add_one("add, rms_norm, silu", [](const Tensors& in) { return silu(rms_norm(add(in[0], in[1]), in[2])); });
  add_one("logsumexp", [](const Tensors& in) { return logsumexp(add(in[0], in[1]), -1); });
  add_one("sums of both dims", [](const Tensors& in) {
    return add(sum(in[0], {.dims = {0}, .keepdim = true}), sum(in[0], {.dims = {1}, .keepdim = true}));
  });
  add_one("normalized rows", [](const Tensors& in) {
    return truediv(in[0], sqrt(sum(mul(in[0], in[0]), {.dims = {1}, .keepdim = true})));
  });
}

}  // namespace

void add_pointwise_programs(GateList& list) {
  add_of_size(list, "[64, 256]", {64, 256});
  add_of_size(list, "[2048, 1024]", {2048, 1024});
  const Tensor x = gate_numbers({64, 256}), wide = gate_numbers({1024, 1024});
  for (const int times : {2, 5, 20}) {
    list.add(fmt::format("{} softmaxes [64, 256]", times), {x}, [times](const Tensors& in) {
      return Tensors{repeated(in[0], times, [](const Tensor& v) { return softmax(v, -1); })};
    });
    list.add(fmt::format("{} layer_norms [1024, 1024]", times), {wide}, [times](const Tensors& in) {
      return Tensors{repeated(in[0], times, [](const Tensor& v) { return layer_norm(v); })};
    });
  }
  list.add("12 gelus, then softmax [64, 256]", {x}, [](const Tensors& in) {
    return Tensors{softmax(repeated(in[0], 12, [](const Tensor& v) { return gelu(v); }), -1)};
  });
  list.add("200 mixed ops [64, 64]", {gate_numbers({64, 64})},
           [](const Tensors& in) { return Tensors{mixed(in[0], 200)}; });
  list.add("60 mixed ops [512, 512]", {gate_numbers({512, 512})},
           [](const Tensors& in) { return Tensors{mixed(in[0], 60)}; });
  list.add("transpose, add, clone [1024, 1024]", {wide},
           [](const Tensors& in) { return Tensors{clone(add(transpose(in[0], 0, 1), 1.0))}; });
  list.add("cat of halves, scaled [1024, 1024]", {wide}, [](const Tensors& in) {
    const Tensors halves = chunk(in[0], 2, 1);
    return Tensors{mul(cat({neg(halves[1]), halves[0]}, 1), 0.5)};
  });
  list.add("gather, add, scatter_add [64, 256]", {x, gate_indices({64, 256}, 256)},
           [](const Tensors& in) { return Tensors{scatter_add(in[0], 1, in[1], add(gather(in[0], 1, in[1]), 1.0))}; });
  list.add("cumsum of exp [64, 256]", {x}, [](const Tensors& in) { return Tensors{cumsum(exp(in[0]), 1)}; });
  list.add("20 sums of one tensor [1024, 1024]", {wide}, [](const Tensors& in) {
    Tensors sums;
    for (int i = 0; i < 20; ++i) sums.push_back(sum(mul(in[0], 0.1 * (i + 1)), {.dims = {1}}));
    return sums;
  });
}

}  // namespace tutti::bench
