#include "bench/moe_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tutti/autograd/backward.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/moe.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/grouped_mm.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::bench {
namespace {

constexpr const char* kLoads[] = {"equal", "uneven", "few"};

bool equal_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = to_contiguous(a), y = to_contiguous(b);
  return a.dtype() == b.dtype() && a.extents() == b.extents() &&
         std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.nbytes())) == 0;
}

double max_over_mean(const std::vector<int64_t>& counts) {
  const auto all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  return static_cast<double>(*std::max_element(counts.begin(), counts.end())) * static_cast<double>(counts.size()) /
         all;
}

Tensor values(const char* name, const Extents& sizes, DType dtype) {
  return cast(uniform(to_shape(sizes), random_key(name), -1.0, 1.0), dtype);
}

// What a load is made of: where the rows of experts end, and the tokens that they are.
struct Load {
  std::vector<int64_t> counts;
  Tensor offsets, positions;

  Load(const MoECase& p, const char* name) : counts(rows_of_experts(name, p.tokens * p.top_k, p.experts)) {
    std::vector<int64_t> ends, tokens;
    int64_t end = 0;
    for (const int64_t n : counts) {
      ends.push_back(end += n);
      for (int64_t i = 0; i < n; ++i) tokens.push_back(i * p.tokens / n);
    }
    offsets = Tensor::of(ends);
    positions = Tensor::of(tokens);
  }
};

// Times all ways of a comparison in turns; the first one is the dense one.
void add_rows(std::vector<MoERow>& rows, std::vector<MoERow> of_this, const std::vector<std::function<void()>>& ways,
              double flops, double total_ms) {
  const std::vector<Timing> times = measure_in_turns(ways, total_ms);
  for (size_t i = 0; i < ways.size(); ++i) {
    of_this[i].time = times[i];
    of_this[i].gflops = flops / times[i].min_us * 1e-3;
    of_this[i].rate = times[0].min_us / times[i].min_us;
    rows.push_back(of_this[i]);
  }
}

void add_products(std::vector<MoERow>& rows, const MoECase& p, const std::vector<Load>& loads) {
  const int64_t N = p.tokens * p.top_k;
  const Tensor x = values("x", {N, p.dim}, p.dtype), g = values("g", {N, p.hidden_dim}, p.dtype);
  const Tensor w = values("w", {p.experts, p.hidden_dim, p.dim}, p.dtype),
               one = values("one", {p.hidden_dim, p.dim}, p.dtype);
  const double flops = 2.0 * static_cast<double>(N * p.dim * p.hidden_dim);
  std::vector<MoERow> forward{{.what = "rows", .way = "dense"}}, gradient{{.what = "gradient", .way = "dense"}};
  std::vector<std::function<void()>> of_forward{[&] { matmul(x, transpose(one, 0, 1)); }};
  std::vector<std::function<void()>> of_gradient{
      [&] { matmul(transpose(g, 0, 1), x, {.out_dtype = DType::f32, .axis = ContractionAxis::tokens}); }};
  for (size_t i = 0; i < loads.size(); ++i) {
    const Load& load = loads[i];
    const Tensor y = grouped_mm(x, transpose(w, 1, 2), load.offsets);
    bool verified = true;
    for (int64_t e = 0, begin = 0; e < p.experts; begin += load.counts[static_cast<size_t>(e++)]) {
      const int64_t n = load.counts[static_cast<size_t>(e)];
      verified = verified && (n == 0 || equal_bits(narrow(y, 0, begin, n),
                                                   matmul(narrow(x, 0, begin, n), transpose(select(w, 0, e), 0, 1))));
    }
    const double imbalance = max_over_mean(load.counts);
    forward.push_back({.what = "rows", .way = kLoads[i], .max_over_mean = imbalance, .verified = verified});
    gradient.push_back({.what = "gradient", .way = kLoads[i], .max_over_mean = imbalance});
    of_forward.push_back([&] { grouped_mm(x, transpose(w, 1, 2), load.offsets); });
    of_gradient.push_back([&] {
      grouped_mm(transpose(g, 0, 1), x, load.offsets,
                 {.positions = load.positions, .position_count = p.tokens, .out_dtype = DType::f32});
    });
  }
  add_rows(rows, forward, of_forward, flops, p.total_ms);
  add_rows(rows, gradient, of_gradient, flops, p.total_ms);
}

struct Dense final : nn::Module {
  Dense(int64_t dim, int64_t hidden_dim)
      : gate(this, "gate", dim, hidden_dim, options()),
        up(this, "up", dim, hidden_dim, options()),
        down(this, "down", hidden_dim, dim, options()) {}
  static nn::LinearOptions options() { return {.bias = false}; }
  Tensor forward(const Tensor& x) const {
    const Tensor gate_TF = gate(x), up_TF = up(x);
    return down(swiglu(gate_TF, up_TF));
  }
  nn::Child<nn::Linear> gate, up, down;
};

void add_layers(std::vector<MoERow>& rows, const MoECase& p) {
  const Tensor x = requires_grad_(values("x", {p.tokens, p.dim}, p.dtype)),
               cotangent = values("cotangent", {p.tokens, p.dim}, p.dtype);
  const nn::RouterOptions routed{.num_experts = p.experts,
                                 .top_k = p.top_k,
                                 .score_func = nn::ScoreFunction::softmax,
                                 .route_norm = true,
                                 .init = nn::Init::normal(0.1)};
  nn::RouterOptions forced = routed;
  forced.force_load_balance = true;
  Dense dense(p.dim, p.top_k * p.hidden_dim);
  nn::MoE equal({.dim = p.dim, .hidden_dim = p.hidden_dim, .router = forced}),
      uneven({.dim = p.dim, .hidden_dim = p.hidden_dim, .router = routed});
  for (nn::Module* m :
       {static_cast<nn::Module*>(&dense), static_cast<nn::Module*>(&equal), static_cast<nn::Module*>(&uneven)}) {
    m->to(p.dtype);
    nn::initialize(*m);
  }
  const auto step = [&](auto& layer) {
    layer.zero_grad();
    set_grad(x, {});
    backward(nn::call(layer, x), cotangent);
  };
  uneven.forward(detach(x));
  const Tensor counts = uneven.tokens_per_expert.use();
  const double imbalance = max_over_mean({counts.data<int64_t>(), counts.data<int64_t>() + counts.numel()});
  const double flops = 3 * 3 * 2.0 * static_cast<double>(p.tokens * p.top_k * p.dim * p.hidden_dim);
  add_rows(rows,
           {{.what = "layer", .way = "dense"},
            {.what = "layer", .way = "equal", .max_over_mean = 1},
            {.what = "layer", .way = "uneven", .max_over_mean = imbalance}},
           {[&] { step(dense); }, [&] { step(equal); }, [&] { step(uneven); }}, flops, p.total_ms);
  const Tensor grad = to_contiguous(uneven.gate->weight.grad());
  for (int64_t i = 0; i < grad.numel(); ++i)
    rows.back().verified = rows.back().verified && std::isfinite(grad.data<float>()[i]);
}

}  // namespace

std::vector<int64_t> rows_of_experts(const std::string& load, int64_t rows, int64_t experts) {
  std::vector<double> shares;
  for (int64_t e = 0; e < experts; ++e) {
    if (load == "equal") shares.push_back(1);
    else if (load == "uneven") shares.push_back(1 / std::sqrt(static_cast<double>(e + 1)));
    else
      shares.push_back(e == 0       ? static_cast<double>((experts + 1) / 2 - 1) + (experts < 3 ? 1 : 0)
                       : e % 2 == 0 ? 1
                                    : 0);
  }
  // Rounded so that all rows are given away.
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<int64_t> counts;
  double until = 0;
  int64_t given = 0;
  for (const double share : shares) {
    until += share;
    const auto end = static_cast<int64_t>(std::llround(static_cast<double>(rows) * until / all));
    counts.push_back(end - given);
    given = end;
  }
  return counts;
}

std::vector<MoERow> run_moe_bench(const MoECase& p) {
  RankContext::current().set_threads(p.threads);
  seed_all(1);
  std::vector<MoERow> rows;
  std::vector<Load> loads;
  for (const char* name : kLoads) loads.emplace_back(p, name);
  {
    const NoGradScope no_grad;
    add_products(rows, p, loads);
  }
  add_layers(rows, p);
  return rows;
}

}  // namespace tutti::bench
