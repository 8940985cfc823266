// Kernels of ggml's CPU backend. Cases on stdin, answers on stdout (peer.h): ggml_kernels THREADS. A case is one graph,
// planned before the clock runs. g++ -O3 -std=c++20 -I ROOT ggml_kernels.cpp -lggml-cpu -lggml-base -o ggml_kernels &&
// echo "gemm 1024 1024 1024 f32 nk" | ./ggml_kernels 1
#include <ggml-cpu.h>
#include <ggml.h>

#include "bench/peers/kernels/peer.h"

using namespace tutti::bench;
using namespace tutti::bench::peers;

static int threads;
static ggml_threadpool* pool;

// Tensors of a graph, all of whose memory begins at pages.
class Graph {
 public:
  Graph() : context_(ggml_init({1 << 20, nullptr, true})) {}
  ~Graph() { ggml_free(context_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ggml_context* context() const { return context_; }

  // Sizes from the innermost on, as ggml has them.
  ggml_tensor* operand(ggml_type type, std::vector<int64_t> sizes, const void* values) {
    ggml_tensor* tensor = ggml_new_tensor(context_, type, static_cast<int>(sizes.size()), sizes.data());
    give_memory(tensor);
    std::memcpy(tensor->data, values, ggml_nbytes(tensor));
    return tensor;
  }

  Timing time_of(ggml_tensor* result) {
    ggml_cgraph* graph = ggml_new_graph(context_);
    ggml_build_forward_expand(graph, result);
    for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) give_memory(ggml_graph_node(graph, i));
    ggml_cplan plan = ggml_graph_plan(graph, threads, pool);
    const Elements<char> work(static_cast<long>(plan.work_size) + 1);
    plan.work_data = reinterpret_cast<uint8_t*>(work.data());
    return measure([&] {
      if (ggml_graph_compute(graph, &plan) != GGML_STATUS_SUCCESS) throw std::runtime_error("the graph failed");
    });
  }

 private:
  void give_memory(ggml_tensor* tensor) {
    if (tensor->data) return;
    if (tensor->view_src) {
      tensor->data = static_cast<char*>(tensor->view_src->data) + tensor->view_offs;
      return;
    }
    tensor->data = memory_.emplace_back(static_cast<long>(ggml_nbytes(tensor))).data();
  }

  ggml_context* context_;
  std::vector<Elements<char>> memory_;
};

static Elements<float> copy_of(const ggml_tensor* tensor) {
  Elements<float> out(ggml_nelements(tensor));
  std::memcpy(out.data(), tensor->data, ggml_nbytes(tensor));
  return out;
}

// Results are f32; a bf16 weight meets f32 activations, which ggml rounds to bf16.
template <class T>
static std::optional<Answer> product(const Case& c, ggml_type type) {
  if (c.layout != "nk") return std::nullopt;  // rows of the weight are its only layout
  const long m = c.sizes[0], n = c.sizes[1], k = c.sizes[2];
  const Elements<T> a = random_elements<T>(m * k, 1), b = random_elements<T>(k * n, 2);
  Elements<float> activations(m * k);
  std::transform(a.data(), a.data() + m * k, activations.data(),
                 [](T v) { return static_cast<float>(static_cast<double>(v)); });
  Graph graph;
  ggml_tensor* y = ggml_mul_mat(graph.context(), graph.operand(type, {k, n}, b.data()),
                                graph.operand(GGML_TYPE_F32, {k, m}, activations.data()));
  const Timing time = graph.time_of(y);
  return Answer{time, product_error(c, a, b, copy_of(y)), "mul_mat"};
}

static Answer of_rows(const Case& c) {
  const long columns = c.sizes.back();
  const Elements<float> x = random_elements<float>(c.count(), 1), w = random_elements<float>(columns, 2),
                        b = random_elements<float>(columns, 3);
  const Elements<float> other = random_elements<float>(c.count(), 2);
  Graph graph;
  ggml_context* g = graph.context();
  const std::vector<int64_t> sizes(c.sizes.rbegin(), c.sizes.rend());
  ggml_tensor *t = graph.operand(GGML_TYPE_F32, sizes, x.data()), *y = nullptr;
  std::function<double(long)> expected;
  if (c.op == "softmax") {
    y = ggml_soft_max(g, t);
    expected = [&](long i) { return softmax_of_row(x.data() + i / columns * columns, columns, i % columns); };
  } else if (c.op == "layer_norm") {
    y = ggml_add(g, ggml_mul(g, ggml_norm(g, t, 1e-5f), graph.operand(GGML_TYPE_F32, {columns}, w.data())),
                 graph.operand(GGML_TYPE_F32, {columns}, b.data()));
    expected = [&](long i) {
      return normed_of_row(x.data() + i / columns * columns, columns, i % columns) * w.data()[i % columns] +
             b.data()[i % columns];
    };
  } else if (c.op == "exp") {
    y = ggml_exp(g, t);
    expected = [&](long i) { return std::exp(static_cast<double>(x.data()[i])); };
  } else {
    y = ggml_add(g, t, graph.operand(GGML_TYPE_F32, sizes, other.data()));
    expected = [&](long i) { return static_cast<double>(x.data()[i]) + other.data()[i]; };
  }
  const Timing time = graph.time_of(y);
  return {time, pointwise_error(copy_of(y), expected, c.op == "softmax" || c.op == "exp" ? 0 : 1), c.op};
}

static Answer attention(const Case& c) {
  const long heads = c.sizes[0] * c.sizes[1], length = c.sizes[2], dim = c.sizes[3];
  const Elements<float> q = random_elements<float>(c.count(), 1), k = random_elements<float>(c.count(), 2),
                        v = random_elements<float>(c.count(), 3);
  Elements<ggml_fp16_t> mask(length * length);
  const ggml_fp16_t hidden = ggml_fp32_to_fp16(-INFINITY);
  for (long i = 0; i < length; ++i) std::fill(mask.data() + i * length + i + 1, mask.data() + (i + 1) * length, hidden);
  Graph graph;
  const std::vector<int64_t> sizes{dim, length, c.sizes[1], c.sizes[0]};
  const auto operand = [&](const Elements<float>& x) { return graph.operand(GGML_TYPE_F32, sizes, x.data()); };
  ggml_tensor* y = ggml_flash_attn_ext(graph.context(), operand(q), operand(k), operand(v),
                                       graph.operand(GGML_TYPE_F16, {length, length}, mask.data()),
                                       1 / std::sqrt(static_cast<float>(dim)), 0, 0);
  const Timing time = graph.time_of(y);
  const Elements<float> got = copy_of(y);  // [batch, length, heads, dim]
  double worst = 0;
  for (long head = 0; head < heads; head += 5) {
    for (long row = 0; row < length; row += 101) {
      const auto at = [&](const Elements<float>& x, long position) {
        return x.data() + (head * length + position) * dim;
      };
      std::vector<double> want(dim, 0.0);
      double total = 0;
      for (long key = 0; key <= row; ++key) {
        double score = 0;
        for (long e = 0; e < dim; ++e) score += static_cast<double>(at(q, row)[e]) * at(k, key)[e];
        const double weight = std::exp(score / std::sqrt(static_cast<double>(dim)));
        total += weight;
        for (long e = 0; e < dim; ++e) want[e] += weight * at(v, key)[e];
      }
      const float* result = got.data() + ((head / c.sizes[1] * length + row) * c.sizes[1] + head % c.sizes[1]) * dim;
      for (long e = 0; e < dim; ++e)
        worst = std::max(worst, std::abs(want[e] / total - result[e]) / (1e-5 * (1 + std::abs(want[e] / total))));
    }
  }
  return {time, worst, "flash_attn_ext"};
}

static Answer adamw(const Case& c) {
  const Elements<float> p = random_elements<float>(c.count(), 1), g = random_elements<float>(c.count(), 2),
                        zeros(c.count());
  const float numbers[7] = {1e-6f, 0.9f,  0.999f, 1e-8f,
                            0.01f, 10.0f, 1000.0f};  // rate, betas, eps, decay, and what the moments are scaled with
  Graph graph;
  const auto operand = [&](const Elements<float>& x) { return graph.operand(GGML_TYPE_F32, {c.count()}, x.data()); };
  ggml_tensor* parameter = operand(p);
  ggml_set_param(parameter);
  ggml_tensor* gradient = operand(g);
  ggml_tensor* step = ggml_opt_step_adamw(graph.context(), parameter, gradient, operand(zeros), operand(zeros),
                                          graph.operand(GGML_TYPE_F32, {7}, numbers));
  const Timing time = graph.time_of(step);
  const Elements<float> updated = copy_of(parameter);
  const bool finite =
      std::all_of(updated.data(), updated.data() + updated.size(), [](float v) { return std::isfinite(v); });
  return {time, finite ? 0.0 : INFINITY, "opt_step_adamw"};
}

static std::optional<Answer> run(const Case& c) {
  if (c.op == "gemm" && c.dtype == "f32") return product<float>(c, GGML_TYPE_F32);
  if (c.op == "gemm" && c.dtype == "bf16") return product<BFloat16>(c, GGML_TYPE_BF16);
  if (c.op == "softmax" || c.op == "layer_norm" || c.op == "exp" || c.op == "add") return of_rows(c);
  if (c.op == "attention") return attention(c);
  if (c.op == "adamw") return adamw(c);
  if (c.op == "chain") throw std::runtime_error("gelu of f32 is looked up in a table of 16-bit floats");
  return std::nullopt;
}

int main(int, char** argv) {
  threads = std::atoi(argv[1]);
  ggml_cpu_init();
  ggml_threadpool_params params = ggml_threadpool_params_default(threads);
  pool = ggml_threadpool_new(&params);
  const std::string isa = ggml_cpu_has_avx512() ? "AVX-512" : ggml_cpu_has_avx2() ? "AVX2" : "less than AVX2";
  const int status =
      serve(ggml_version(),
            isa + (ggml_cpu_has_llamafile() ? " with its tiled products" : " without its tiled products"), run);
  ggml_threadpool_free(pool);
  return status;
}
