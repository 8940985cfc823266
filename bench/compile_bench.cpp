#include "bench/compile_bench.h"

#include <cstring>
#include <functional>

#include "bench/model_shard.h"
#include "tutti/autograd/backward.h"
#include "tutti/codegen/kernel.h"
#include "tutti/graph/compile.h"
#include "tutti/models/family.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/layer_norm.h"
#include "tutti/ops/optimizer_step.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/statistics.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/where.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/gradient_tree.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/step/shard_step.h"

namespace tutti::bench {
namespace {

Tensor random(const Extents& sizes, double low = -2.0, double high = 2.0) {
  return uniform(to_shape(sizes), random_key("bench"), low, high);
}

// Both ways to run `fn` on `arguments`. Results are kept until the next call, as a program would.
template <class Fn, class... Args>
void add_rows(std::vector<CompileRow>& rows, const char* what, const std::string& shape, double bytes, Fn fn,
              const Args&... arguments) {
  const auto compiled = compile(fn, {.name = what});
  const auto row = [&](const char* mode, auto&& call, int64_t launches) {
    auto kept = call(arguments...);
    const Timing time = measure([&] { kept = call(arguments...); });
    rows.push_back({what, shape, mode, time, bytes / time.median_us / 1e3, launches});
  };
  row("eager", fn, 0);
  compiled(arguments...);
  row("compiled", compiled, compiled.statistics().last.launches);
}

void add_pointwise(std::vector<CompileRow>& rows, int64_t n) {
  const double bytes = 4.0 * static_cast<double>(n);
  const std::string shape = fmt::format("[{}]", n);
  const Tensor a = random({n}), b = random({n}), c = random({n}), to = random({n});
  const Timing copy = measure([&] { std::memcpy(to.raw_data(), a.raw_data(), static_cast<size_t>(a.nbytes())); });
  rows.push_back({"memcpy, 1 thread", shape, "copy", copy, 2 * bytes / copy.median_us / 1e3, 0});
  add_rows(
      rows, "chain a*b+c, gelu(tanh)", shape, 4 * bytes,
      [](const Tensor& x, const Tensor& y, const Tensor& z) { return gelu(add(mul(x, y), z), GeluForm::tanh); }, a, b,
      c);
}

void add_rows_of_1024(std::vector<CompileRow>& rows) {
  const int64_t n = 16384;
  const std::string shape = fmt::format("[{}, 1024]", n);
  const double bytes = 4.0 * 1024 * static_cast<double>(n);
  const Tensor x = random({n, 1024}), r = random({n, 1024}), w = random({1024}), b = random({1024});
  add_rows(rows, "softmax", shape, 2 * bytes, [](const Tensor& t) { return softmax(t, -1); }, x);
  add_rows(
      rows, "layer_norm", shape, 2 * bytes,
      [](const Tensor& t, const Tensor& g, const Tensor& h) { return layer_norm(t, g, h, 1e-5); }, x, w, b);
  add_rows(
      rows, "add, rms_norm", shape, 4 * bytes,
      [](const Tensor& t, const Tensor& s, const Tensor& g) {
        const Tensor sum = add(t, s);
        return std::pair(sum, rms_norm(sum, g, 1e-6));
      },
      x, r, w);
  const Tensor labels = randint(0, 1024, {n}, random_key("labels"));
  add_rows(
      rows, "cross_entropy", shape, bytes, [](const Tensor& t, const Tensor& l) { return cross_entropy(t, l); }, x,
      labels);
}

// A loss of the library, of seven ops, with its backward; compiled in eager programs as well.
void add_loss(std::vector<CompileRow>& rows) {
  const int64_t n = 1 << 22;
  const Tensor x = random({n}), t = random({n});
  requires_grad_(x);
  add_rows(
      rows, "huber loss, fwd+bwd", fmt::format("[{}]", n), 5 * 4.0 * static_cast<double>(n),
      [](const Tensor& input, const Tensor& target) {
        const Tensor leaves[] = {input}, d = abs(sub(input, target));
        const Tensor losses[] = {mean(where(lt(d, 1.0), mul(mul(d, d), 0.5), sub(d, 0.5)))};
        return grad(losses, leaves)[0];
      },
      x, t);
}

void add_adamw(std::vector<CompileRow>& rows) {
  const int64_t n = 1 << 24;
  const Tensor p = random({n}), g = random({n}), m = random({n}), v = random({n}, 0, 1);
  add_rows(
      rows, "adamw", fmt::format("[{}]", n), 7 * 4.0 * static_cast<double>(n),
      [](const Tensor& param, const Tensor& grad, const Tensor& m1, const Tensor& m2) {
        adamw_step_(param, grad, m1, m2, {.lr = 1e-6, .step = 5});
        return param;
      },
      p, g, m, v);
}

// The optimizer step of the quickstart: many parameters, few of them large. Parameters after some steps must be equal.
void add_adamw_of_a_model(std::vector<CompileRow>& rows) {
  std::vector<Tensor> expected;
  for (const char* mode : {"eager", "compiled", "batched"}) {
    models::Decoder model(models::flavor_named("qwen3", "quickstart"), 256);
    seed_all(1);
    nn::initialize(model);
    const std::vector<nn::NamedParameter> parameters = model.named_parameters();
    const auto optimizer = optim::make_adamw(parameters);
    std::vector<Tensor> grads;
    for (const nn::NamedParameter& p : parameters) grads.push_back(random(p.parameter.sizes()));
    const bool compiled = std::string(mode) != "eager";
    if (compiled) optimizer->compile({.name = "optimizer step", .batch = std::string(mode) == "batched"});
    for (int step = 0; step < 3; ++step) optimizer->step(grads, 0.01 / (step + 1));
    double bytes = 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor p = parameters[i].parameter.master();
      bytes += 7.0 * static_cast<double>(p.nbytes());
      if (!compiled) expected.push_back(clone(p));
      TUTTI_CHECK(std::memcmp(p.raw_data(), expected[i].raw_data(), static_cast<size_t>(p.nbytes())) == 0,
                  "bench compile: parameter '{}' differs between an eager and a "
                  "{} step",
                  parameters[i].name, mode);
    }
    const Timing time = measure([&] { optimizer->step(grads, 1e-6); });
    rows.push_back({"adamw, a model", fmt::format("{} parameters", parameters.size()), mode, time,
                    bytes / time.median_us / 1e3, compiled ? optimizer->statistics().last.launches : 0});
  }
}

void add_empty_call(std::vector<CompileRow>& rows) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 20; ++i) tensors.push_back(random({8, 8}));
  add_rows(
      rows, "nothing, of 20 tensors", "[8, 8] each", 0, [](const std::vector<Tensor>& list) { return list[0]; },
      tensors);
}

// What a held tensor costs a call that does nothing with it: its checks, and finding its memory.
void add_held(std::vector<CompileRow>& rows) {
  std::vector<Tensor> tensors;
  for (const int held : {0, 256}) {
    while (static_cast<int>(tensors.size()) < held) tensors.push_back(random({8, 8}));
    const auto compiled = compile(
        [&](const Tensor& x) {
          for (const Tensor& t : tensors) add(t, 1.0);
          return x;
        },
        {.name = "held"});
    const Tensor x = random({8, 8});
    Tensor kept = compiled(x);
    rows.push_back({fmt::format("nothing, holds {}", held), "[8, 8] each", "compiled",
                    measure([&] { kept = compiled(x); }), 0, 0});
  }
}

struct ShardGradients {
  Tensor losses;
  parallel::UseGradients uses;
};

bool same_bits(const ShardGradients& a, const ShardGradients& b) {
  const auto same = [](const Tensor& x, const Tensor& y) {
    const Tensor p = to_contiguous(x), q = to_contiguous(y);
    return p.nbytes() == q.nbytes() && std::memcmp(p.raw_data(), q.raw_data(), static_cast<size_t>(p.nbytes())) == 0;
  };
  bool equal = same(a.losses, b.losses);
  for (size_t p = 0; p < a.uses.size(); ++p) {
    for (size_t u = 0; u < a.uses[p].size(); ++u) equal = equal && same(a.uses[p][u], b.uses[p][u]);
  }
  return equal;
}

}  // namespace

std::vector<CompileRow> run_compile_bench(int threads) {
  RankContext::current().set_threads(threads);
  std::vector<CompileRow> rows;
  add_pointwise(rows, 1 << 20);
  add_pointwise(rows, 1 << 24);
  add_rows_of_1024(rows);
  add_loss(rows);
  add_adamw(rows);
  add_adamw_of_a_model(rows);
  add_empty_call(rows);
  add_held(rows);
  return rows;
}

StepRow run_step_bench(const std::string& flavor, int64_t rows, int64_t sequence_length, int threads,
                       double activation_memory_budget) {
  RankContext::current().set_threads(threads);
  const ModelShard shard(flavor, rows, sequence_length);
  parallel::GradientTree tree(shard.parameters);
  const train::ShardStep eager(shard.model, tree, {}, false),
      compiled(shard.model, tree, {}, true, activation_memory_budget);

  StepRow row{.model = flavor, .tokens = shard.tokens()};
  Allocator& allocator = RankContext::current().allocator();
  const auto run = [&](const train::ShardStep& step, double* median_ms, double* peak) {
    allocator.reset_peak();
    const int64_t before = allocator.statistics().current_bytes;
    const auto one = [&] {
      tree.begin(0);
      const Tensor losses = step.run(shard.batch, shard.labels, shard.scale);
      tree.end();
      ShardGradients result{losses, tree.take().at(0).uses};
      tree.clear();
      return result;
    };
    ShardGradients kept = one();
    *peak = static_cast<double>(allocator.statistics().peak_bytes - before) / (1 << 20);
    *median_ms = measure([&] { kept = one(); }, 1.0, 7).median_us / 1e3;
    return kept;
  };
  const codegen::CacheStatistics before = codegen::cache_statistics();
  const ShardGradients b = run(compiled, &row.compiled_ms, &row.compiled_peak_mbytes);
  const codegen::CacheStatistics after = codegen::cache_statistics();
  const CompileStatistics s = compiled.statistics();
  row.trace_ms = s.trace_ms, row.compile_ms = s.compile_ms;
  row.kernels_compiled = after.compiled - before.compiled, row.kernels_read = after.disk_hits - before.disk_hits;
  row.ops = s.last.nodes, row.kernels = s.last.kernels, row.launches = s.last.launches,
  row.fused_ops = s.last.fused_nodes, row.calls = s.last.calls;
  row.kept_mbytes = static_cast<double>(s.partition.kept_bytes) / (1 << 20);
  row.read_mbytes = static_cast<double>(s.partition.read_bytes) / (1 << 20);
  row.recomputed = s.partition.recomputed;
  row.kernel_mbytes = s.last.kernel_bytes / (1 << 20);
  row.arena_mbytes = static_cast<double>(s.last.arena_bytes) / (1 << 20);
  const ShardGradients a = run(eager, &row.eager_ms, &row.eager_peak_mbytes);
  row.same_bits = same_bits(a, b);
  return row;
}

}  // namespace tutti::bench
