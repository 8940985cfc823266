#include "tutti/ops/row_step.h"

#include <algorithm>
#include <cmath>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/tree_sum.h"
#include "tutti/ops/indexing/prefetch.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

// Inputs: what is written (the table first), then rows [K], values [K, D], and numbers [9], which change from step to
// step: a compiled graph holds attrs.
enum Number : size_t { kGradScale, kDecay, kStepSize, kEps, kBeta1, kRest1, kBeta2, kRest2, kCorrection2, kNumbers };

size_t states_of(const OpCall& call) { return static_cast<size_t>(call.op.num_outputs); }
const Tensor& rows_of(const OpCall& call) { return call[states_of(call)]; }
const Tensor& values_of(const OpCall& call) { return call[states_of(call) + 1]; }

void infer(const OpCall& call, OutputMetas& out) {
  const size_t n = states_of(call);
  const Tensor& table = call[0];
  for (size_t k = 0; k <= n + 2; ++k)
    TUTTI_CHECK(k == n || call[k].dtype() == DType::f32, "{}: operand {} is {}; expected f32", call.op.name, k,
                describe(call[k]));
  TUTTI_CHECK(table.ndim() == 2 && values_of(call).ndim() == 2 && values_of(call).size(1) == table.size(1),
              "{}: gradients {} for the rows of {}; expected [K, D] and [V, D]", call.op.name,
              describe(values_of(call)), describe(table));
  TUTTI_CHECK(rows_of(call).dtype() == DType::i64 && rows_of(call).ndim() == 1 &&
                  rows_of(call).size(0) == values_of(call).size(0),
              "{}: rows {} for the gradients {}; expected i64, one for each", call.op.name, describe(rows_of(call)),
              describe(values_of(call)));
  for (size_t k = 1; k < n; ++k)
    TUTTI_CHECK(call[k].sizes() == table.sizes() || (call[k].ndim() == 1 && call[k].size(0) == table.size(0)),
                "{}: state {} beside the table {}; expected its sizes, or one element a row", call.op.name,
                describe(call[k]), describe(table));
  for (size_t k = 0; k < n; ++k) out.add(DType::f32, call[k].sizes());
}

// Distinct rows ascend, which also keeps threads apart; behind them stands -1.
void check(const OpCall& call) {
  const Tensor rows = to_contiguous(rows_of(call));
  const int64_t* row = rows.data<int64_t>();
  const int64_t vocab = call[0].extents()[0];
  for (int64_t i = 0; i < rows.numel(); ++i) {
    TUTTI_CHECK(row[i] >= -1 && row[i] < vocab, "{}: a gradient of row {}; the table has {} rows", call.op.name, row[i],
                vocab);
    TUTTI_CHECK(i == 0 || row[i] == -1 || (row[i - 1] >= 0 && row[i] > row[i - 1]),
                "{}: row {} stands behind row {}; rows ascend, and -1 stands behind the last", call.op.name, row[i],
                row[i - 1]);
  }
}

// ---- formulas, in f32 for kernels and in double for references ------------------------------------------------------

// `state(k, d)` is element d of the row of state k, `g(d)` its gradient.
struct Sgd {
  template <class Real, class State, class Gradient>
  static void step(const Real* n, int64_t columns, State state, Gradient gradient) {
    for (int64_t d = 0; d < columns; ++d) {
      const Real g = gradient(d) * n[kGradScale] + n[kDecay] * state(0, d);
      state(0, d) = state(0, d) - n[kStepSize] * g;
    }
  }
};

struct Adagrad {
  template <class Real, class State, class Gradient>
  static void step(const Real* n, int64_t columns, State state, Gradient gradient) {
    const auto g = [&](int64_t d) -> Real { return gradient(d) * n[kGradScale] + n[kDecay] * state(0, d); };
    const Real squares =
        facets::tree_sum<Real, facets::kSquaresLeaf>(0, columns, [&](int64_t d) { return g(d) * g(d); });
    const Real h = state(1, 0) + squares / static_cast<Real>(std::max<int64_t>(columns, 1));
    state(1, 0) = h;
    const Real rate = n[kStepSize] / (std::sqrt(h) + n[kEps]);
    for (int64_t d = 0; d < columns; ++d) {
      const Real update = rate * g(d);
      state(0, d) = state(0, d) - update;
    }
  }
};

struct AdamW {
  template <class Real, class State, class Gradient>
  static void step(const Real* n, int64_t columns, State state, Gradient gradient) {
    for (int64_t d = 0; d < columns; ++d) {
      const Real g = gradient(d) * n[kGradScale];
      const Real m = n[kBeta1] * state(1, d) + n[kRest1] * g, v = n[kBeta2] * state(2, d) + n[kRest2] * (g * g);
      state(1, d) = m;
      state(2, d) = v;
      state(0, d) = state(0, d) * n[kDecay] - n[kStepSize] * m / (std::sqrt(v * n[kCorrection2]) + n[kEps]);
    }
  }
};

// An element in memory, read and written in double.
struct Element {
  const Tensor& tensor;
  int64_t offset;
  operator double() const { return facets::read_double(tensor, offset); }
  Element& operator=(double value) {
    facets::write_double(tensor, offset, value);
    return *this;
  }
};

int64_t column_stride(const Tensor& t) { return t.ndim() == 2 ? t.strides()[1] : 0; }

// step(numbers, columns, state, gradient) for every row.
template <class Step>
void run_reference_step(const OpCall& call, std::span<const Tensor> outputs, Step step) {
  check(call);
  double numbers[kNumbers];
  for (size_t k = 0; k < kNumbers; ++k)
    numbers[k] = facets::read_double(call[states_of(call) + 2],
                                     static_cast<int64_t>(k) * call[states_of(call) + 2].strides()[0]);
  const Tensor& values = values_of(call);
  for (int64_t i = 0; i < rows_of(call).numel(); ++i) {
    const int64_t row = facets::read_int64(rows_of(call), i * rows_of(call).strides()[0]);
    if (row < 0) return;
    step(
        numbers, values.extents()[1],
        [&](size_t k, int64_t d) {
          return Element{outputs[k], row * outputs[k].strides()[0] + d * column_stride(outputs[k])};
        },
        [&](int64_t d) { return facets::read_double(values, facets::offset_at(values, {i, d})); });
  }
}

// A kernel and not a recipe: which rows are written is in memory.
template <class Step>
void run_kernel(const OpCall& call, std::span<const Tensor> outputs, Step step) {
  constexpr int64_t kAhead = 8;  // rows that are asked for before they are stepped
  const Tensor rows = to_contiguous(rows_of(call)), values = to_contiguous(values_of(call)),
               numbers = to_contiguous(call[states_of(call) + 2]);
  const int64_t columns = values.extents()[1], count = rows.numel();
  const int64_t* row = rows.data<int64_t>();
  const auto run = [&]<class Stride>(const Stride& stride) {
    ThreadPool::current().parallel_for(
        count, std::max<int64_t>(kParallelGrain / (columns + 1), 1), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end && row[i] >= 0; ++i) {
            float* states[3];
            for (size_t k = 0; k < outputs.size(); ++k)
              states[k] = outputs[k].data<float>() + row[i] * outputs[k].strides()[0];
            for (size_t k = 0; k < outputs.size() && i + kAhead < end && row[i + kAhead] >= 0; ++k) {
              const float* ahead = outputs[k].data<float>() + row[i + kAhead] * outputs[k].strides()[0];
              facets::prefetch_lines(ahead,
                                     (outputs[k].ndim() == 2 ? columns : 1) * static_cast<int64_t>(sizeof(float)));
            }
            const float* g = values.data<float>() + i * columns;
            step(
                numbers.data<float>(), columns, [&](size_t k, int64_t d) -> float& { return states[k][d * stride(k)]; },
                [&](int64_t d) { return g[d]; });
          }
        });
  };
  const bool dense = std::all_of(outputs.begin(), outputs.end(),
                                 [](const Tensor& t) { return t.ndim() < 2 || column_stride(t) == 1; });
  if (dense) run([](size_t) { return int64_t{1}; });  // states of one element a row have column 0 only
  else run([&](size_t k) { return column_stride(outputs[k]); });
}

// ---- the ops --------------------------------------------------------------------------------------------------------

// Per output its letters; the table and its gradients are [VW].
std::string sharding(const OpCall& call) {
  std::string states, outputs;
  for (size_t k = 0; k < states_of(call); ++k) {
    const char* letters = call[k].ndim() == 2 ? "VW" : "V";
    states += fmt::format("#x{}[{}] ", k, letters);
    outputs += fmt::format(" y{}[{}]", k, letters);
  }
  return fmt::format("{}#r[K] #g[KW] #n[N] ->{}", states, outputs);
}

// States of the numbers `per_row` or full, in [0.5, 2).
std::vector<Sample> samples(int states, bool per_row) {
  const Tensor numbers = Tensor::of<float>({0.5f, 0.01f, 0.1f, 1e-3f, 0.9f, 0.1f, 0.99f, 0.01f, 7.0f});
  std::vector<Sample> list;
  const auto add = [&](const char* name, int64_t vocab, int64_t columns, std::vector<int64_t> rows) {
    Sample sample{name, {}, {}};
    for (int k = 0; k < states; ++k)
      sample.inputs.push_back(facets::sample_tensor(
          static_cast<uint64_t>(k), per_row && k > 0 ? Extents{vocab} : Extents{vocab, columns}, DType::f32, 0.5, 2.0));
    sample.inputs.push_back(Tensor::of<int64_t>(rows));
    sample.inputs.push_back(facets::sample_tensor(9, {static_cast<int64_t>(rows.size()), columns}));
    sample.inputs.push_back(numbers);
    list.push_back(std::move(sample));
  };
  add("some_rows", 9, 5, {1, 4, 8, -1, -1});
  add("wide", 3, 700, {0, 2});
  add("no_rows", 3, 4, {-1, -1});
  add("none", 3, 4, {});
  add("no_columns", 3, 0, {1});
  return list;
}

constexpr const char* kNoGradient = "an optimizer writes its parameters in place, outside of any tape";

template <class Formula>
OpDef row_step(const char* name, int states, std::vector<Sample> (*samples)()) {
  OpDef op{.name = name,
           .num_inputs = states + 3,
           .num_outputs = states,
           .infer = infer,
           .reference =
               [](const OpCall& call, std::span<const Tensor> outputs) {
                 run_reference_step(call, outputs, [](auto... a) { Formula::template step<double>(a...); });
               },
           .gradient = {.none = kNoGradient},
           .check = check,
           .kernel =
               [](const OpCall& call, std::span<const Tensor> outputs) {
                 run_kernel(call, outputs, [](auto... a) { Formula::template step<float>(a...); });
               },
           .sharding = sharding,
           .samples = samples};
  for (int k = 0; k < states; ++k) op.writes[k] = static_cast<int8_t>(k);
  return op;
}

const OpDef kSgdRows = row_step<Sgd>("sgd_rows_step_", 1, [] { return samples(1, false); });
const OpDef kAdagradRows = row_step<Adagrad>("adagrad_rows_step_", 2, [] { return samples(2, true); });
const OpDef kAdamWRows = row_step<AdamW>("adamw_rows_step_", 3, [] { return samples(3, false); });

void step(const OpDef& op, std::initializer_list<Tensor> states, const RowGradients& grads,
          std::initializer_list<double> numbers) {
  std::vector<Tensor> inputs(states), outputs(states.size());
  const Tensor list = Tensor::empty({kNumbers}, DType::f32);
  std::fill(list.data<float>(), list.data<float>() + kNumbers, 0.0f);
  std::transform(numbers.begin(), numbers.end(), list.data<float>(), [](double x) { return static_cast<float>(x); });
  inputs.insert(inputs.end(), {grads.rows, grads.values, beside(grads.values, list)});
  apply(op, inputs, {}, outputs);
}

}  // namespace

void sgd_rows_step_(const Tensor& param, const RowGradients& grads, const SgdStep& o) {
  TUTTI_CHECK(o.momentum == 0.0,
              "sgd_rows_step_: momentum is {}; rows that are not touched would need it too, use adagrad_rows_step_ or "
              "a dense gradient",
              o.momentum);
  step(kSgdRows, {param}, grads, {o.grad_scale, o.weight_decay, o.lr});
}

void adagrad_rows_step_(const Tensor& param, const Tensor& h, const RowGradients& grads, const AdagradStep& o) {
  TUTTI_CHECK(h.ndim() == 1, "adagrad_rows_step_: the state is {}; expected one element for each row", describe(h));
  step(kAdagradRows, {param, h}, grads, {o.grad_scale, o.weight_decay, o.lr, o.eps});
}

void adamw_rows_step_(const Tensor& param, const Tensor& m, const Tensor& v, const RowGradients& grads,
                      const AdamWStep& o) {
  TUTTI_CHECK(o.step >= 1, "adamw_rows_step_: step is {}; the first step is 1", o.step);
  TUTTI_CHECK(m.ndim() == 2 && v.ndim() == 2,
              "adamw_rows_step_: the moments are {} and {}; expected the sizes of the table {}", describe(m),
              describe(v), describe(param));
  const double n = static_cast<double>(o.step);
  step(kAdamWRows, {param, m, v}, grads,
       {o.grad_scale, 1 - o.lr * o.weight_decay, o.lr / (1 - std::pow(o.beta1, n)), o.eps, o.beta1, 1 - o.beta1,
        o.beta2, 1 - o.beta2, 1 / (1 - std::pow(o.beta2, n))});
}

}  // namespace tutti

TUTTI_OPS(row_step, &kSgdRows, &kAdagradRows, &kAdamWRows)
