#include "bench/ops_bench.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>

#include "tutti/autograd/backward.h"
#include "tutti/codegen/kernel.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/avg_pool.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/convolution.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/dropout.h"
#include "tutti/ops/embedding.h"
#include "tutti/ops/embedding_bag.h"
#include "tutti/ops/embedding_bag_backward.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/layer_norm.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/max_pool.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/ops/row_gradients.h"
#include "tutti/ops/scatter.h"
#include "tutti/ops/scatter_add.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::bench {
namespace {

struct Case {
  std::string op;
  Extents sizes;
  double bytes;
  double flops;
  std::function<void()> run;
};

// Rows and elements taken at random places of a table; the same bytes as a copy, and the indices.
void add_indexed(std::vector<Case>& list) {
  const auto table = [](int64_t rows, int64_t columns) {
    return uniform({rows, columns}, random_key("bench"), -2.0, 2.0);
  };
  const auto picks = [](const Shape& sizes, int64_t end) { return randint(0, end, sizes, random_key("picks")); };
  const auto add = [&](const char* name, const Extents& sizes, int64_t indices, std::function<Tensor()> fn) {
    list.push_back({name, sizes, 8.0 * static_cast<double>(numel_of(sizes) + indices), 0,
                    [fn, kept = Tensor()]() mutable { kept = fn(); }});
  };
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{4096, 256}, {16384, 1024}}) {
    const Tensor x = table(rows, columns), picked = picks({rows}, rows);
    add("embedding", {rows, columns}, rows, [=] { return embedding(x, picked); });
  }
  const Tensor narrow = table(65536, 16), some = picks({65536}, 65536);
  add("embedding, rows of 16", {65536, 16}, 65536, [=] { return embedding(narrow, some); });
  const Tensor x = table(1024, 1024), square = picks({1024, 1024}, 1024), line = picks({1024}, 1024);
  add("index_select columns", {1024, 1024}, 1024, [=] { return index_select(x, 1, line); });
  add("gather in rows", {1024, 1024}, x.numel(), [=] { return gather(x, 1, square); });
  add("gather in columns", {1024, 1024}, x.numel(), [=] { return gather(x, 0, square); });
  add("scatter in rows", {1024, 1024}, x.numel(), [=] { return scatter(x, 1, square, x); });
  add("scatter in columns", {1024, 1024}, x.numel(), [=] { return scatter(x, 0, square, x); });
  for (const Shape& sizes : {Shape{int64_t{1} << 20}, Shape{65536, 64}}) {
    const Tensor onto = uniform(sizes, random_key("bench"), -2.0, 2.0), index = picks(sizes, onto.extents()[0]);
    add("scatter_add", onto.extents(), onto.numel(), [=] { return scatter_add(onto, 0, index, onto); });
  }
  const Tensor grad = table(4096, 512), tokens = picks({4096}, 32000);
  add("embedding, gradient", {4096, 512}, 4096, [=] { return embedding_backward(grad, tokens, 32000); });
}

// Bags of 20 rows of a table that no cache holds: forward alone, and with the gradient in sparse form. The bytes are
// those of the rows looked up, once each way.
void add_bags(std::vector<Case>& list) {
  constexpr int64_t kRows = 1 << 20, kColumns = 64, kBags = 4096, kLength = 20;
  struct Data {
    Tensor table, indices, offsets, grad;
  };
  const auto data = std::make_shared<Data>();  // made by the first call: nobody else needs these 256 MiB
  const auto make = [data] {
    if (data->table.defined()) return;
    *data = {uniform({kRows, kColumns}, random_key("bench"), -2.0, 2.0),
             randint(0, kRows, {kBags * kLength}, random_key("picks")), mul(arange(kBags), kLength),
             uniform({kBags, kColumns}, random_key("grad"))};
  };
  const double bytes = 4.0 * kBags * kLength * kColumns;
  const Extents sizes = {kBags, kLength, kColumns};
  const auto rows = std::make_shared<Tensor>(zeros({kBags * kLength, kColumns}));
  list.push_back({"embedding_bag: copy of its rows", sizes, 2 * bytes, 0, [=] {
                    make();
                    const float* table = data->table.data<float>();
                    const int64_t* index = data->indices.data<int64_t>();
                    for (int64_t p = 0; p < kBags * kLength; ++p) {
                      __builtin_prefetch(table + index[std::min(p + 16, kBags * kLength - 1)] * kColumns);
                      std::memcpy(rows->data<float>() + p * kColumns, table + index[p] * kColumns,
                                  kColumns * sizeof(float));
                    }
                  }});
  list.push_back({"embedding_bag", sizes, bytes, 0, [=, kept = Tensor()]() mutable {
                    make();
                    kept = embedding_bag(data->table, data->indices, data->offsets);
                  }});
  list.push_back({"embedding_bag, gradient in rows", sizes, bytes, 0, [=, kept = RowGradients()]() mutable {
                    make();
                    kept = embedding_bag_row_gradients(data->grad, data->indices, data->offsets, kRows);
                  }});
  list.push_back({"embedding_bag forward+backward in rows", sizes, 2 * bytes, 0,
                  [=, pooled = Tensor(), kept = RowGradients()]() mutable {
                    make();
                    pooled = embedding_bag(data->table, data->indices, data->offsets);
                    kept = embedding_bag_row_gradients(data->grad, data->indices, data->offsets, kRows);
                  }});
}

// Images of 64 channels, kernels of 3 x 3: beside them the product that a convolution is, as one matmul.
void add_windows(std::vector<Case>& list) {
  const Tensor x = uniform({8, 64, 56, 56}, random_key("images"), -1.0, 1.0),
               w = uniform({64, 64, 3, 3}, random_key("kernels"), -1.0, 1.0);
  const Tensor columns = uniform({576, 8 * 56 * 56}, random_key("columns")), matrix = reshape(w, {64, 576});
  const ConvOptions options{.padding = {1}};
  const double bytes = static_cast<double>(x.nbytes()), flops = 2.0 * 64 * 576 * 8 * 56 * 56;
  const auto add = [&](const char* name, double bytes_moved, double operations, std::function<Tensor()> fn) {
    list.push_back({name, x.extents(), bytes_moved, operations, [fn, kept = Tensor()]() mutable { kept = fn(); }});
  };
  add("conv2d: its product alone", 2 * bytes, flops, [=] { return matmul(matrix, columns); });
  add("conv2d", 2 * bytes, flops, [=] { return conv2d(x, w, {}, options); });
  add("conv2d, gradient of x", 2 * bytes, flops, [=] { return convolution_input_gradient(x, w, {56, 56}, options); });
  add("conv2d, gradient of the weight", 2 * bytes, flops,
      [=] { return convolution_weight_gradient(x, x, {3, 3}, options); });
  const Tensor each = uniform({64, 1, 3, 3}, random_key("each"), -1.0, 1.0);
  add("conv2d of each channel", 2 * bytes, flops / 64,
      [=] { return conv2d(x, each, {}, {.padding = {1}, .groups = 64}); });
  // Values and their indices, twice as wide, for every fourth element.
  add("max_pool2d", 1.75 * bytes, 0, [=] { return max_pool2d(x, {.kernel = {3}, .stride = {2}, .padding = {1}}); });
  add("avg_pool2d", 1.25 * bytes, 0, [=] { return avg_pool2d(x, {.kernel = {2}}); });
}

// The result of each op is kept until the next call, as a program would.
std::vector<Case> cases() {
  std::vector<Case> list;
  const auto tensor = [](const Extents& sizes) { return uniform(to_shape(sizes), random_key("bench"), -2.0, 2.0); };
  const auto pointwise = [&](const char* name, int64_t n, int inputs, double flops,
                             std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)> fn) {
    const Tensor a = tensor({n}), b = tensor({n}), c = tensor({n});
    list.push_back({name,
                    {n},
                    4.0 * static_cast<double>(n) * (inputs + 1),
                    flops * static_cast<double>(n),
                    [a, b, c, fn, kept = Tensor()]() mutable { kept = fn(a, b, c); }});
  };
  pointwise("add", 16, 2, 1, [](const Tensor& a, const Tensor& b, const Tensor&) { return add(a, b); });
  for (const int64_t n : {int64_t{1} << 20, int64_t{1} << 24}) {
    pointwise("add", n, 2, 1, [](const Tensor& a, const Tensor& b, const Tensor&) { return add(a, b); });
    pointwise("chain a*b+c, gelu(tanh)", n, 3, 12, [](const Tensor& a, const Tensor& b, const Tensor& c) {
      return gelu(add(mul(a, b), c), GeluForm::tanh);
    });
    pointwise("gelu(tanh)", n, 1, 10,
              [](const Tensor& a, const Tensor&, const Tensor&) { return gelu(a, GeluForm::tanh); });
    pointwise("exp", n, 1, 1, [](const Tensor& a, const Tensor&, const Tensor&) { return exp(a); });
    pointwise("dropout", n, 1, 1,
              [](const Tensor& a, const Tensor&, const Tensor&) { return dropout(a, 0.1, RandomKey{.key = 7}); });
    pointwise("uniform", n, 0, 1,
              [](const Tensor& a, const Tensor&, const Tensor&) { return uniform(a.sizes(), RandomKey{.key = 7}); });
    pointwise("normal", n, 0, 1,
              [](const Tensor& a, const Tensor&, const Tensor&) { return normal(a.sizes(), RandomKey{.key = 7}); });
    pointwise("sum", n, 1, 1, [](const Tensor& a, const Tensor&, const Tensor&) { return sum(a); });
  }
  const int64_t rows = int64_t{1} << 14;
  const Tensor x = tensor({rows, 1024}), w = tensor({1024}), bias = tensor({1024}), g = tensor({rows, 1024});
  const double full = 4.0 * static_cast<double>(x.numel());
  list.push_back({"softmax", x.extents(), 2 * full, 0, [x, kept = Tensor()]() mutable { kept = softmax(x, -1); }});
  list.push_back(
      {"softmax of columns", x.extents(), 2 * full, 0, [x, kept = Tensor()]() mutable { kept = softmax(x, 0); }});
  list.push_back(
      {"layer_norm", x.extents(), 2 * full, 0, [=, kept = Tensor()]() mutable { kept = layer_norm(x, w, bias); }});
  list.push_back({"rms_norm", x.extents(), 2 * full, 0, [=, kept = Tensor()]() mutable { kept = rms_norm(x, w); }});
  const Tensor xg = detach(x), wg = detach(w);
  requires_grad_(xg);
  requires_grad_(wg);
  list.push_back({"rms_norm forward+backward", x.extents(), 7 * full, 0, [=] {
                    const Tensor inputs[] = {xg, wg}, outputs[] = {rms_norm(xg, wg)}, cotangents[] = {g};
                    grad(outputs, inputs, cotangents);
                  }});
  add_indexed(list);
  add_bags(list);
  add_windows(list);
  return list;
}

// Kernels are compiled anew, so that their compile time is part of every report.
class ColdCache {
 public:
  ColdCache() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tutti-bench-XXXXXX").string();
    TUTTI_CHECK_ENV(mkdtemp(pattern.data()) != nullptr, "bench: cannot make a folder like {}", pattern);
    folder_ = pattern;
    setenv("TUTTI_CACHE_DIR", folder_.c_str(), 1);
  }
  ~ColdCache() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  ColdCache(const ColdCache&) = delete;
  ColdCache& operator=(const ColdCache&) = delete;

 private:
  std::filesystem::path folder_;
};

std::string text_of(const Extents& sizes) { return to_string(sizes); }

}  // namespace

std::vector<OpResult> run_ops_bench(int threads, const std::string& only, MeasuredTime clock) {
  TUTTI_CHECK(clock == MeasuredTime::wall || threads == 1,
              "bench ops: --cpu-time is that of one thread, and --threads is {}; use --threads 1", threads);
  const ColdCache cold;
  RankContext::current().set_threads(threads);
  seed_all(1);
  std::vector<OpResult> results;
  const auto wanted = [&](const std::string& name) { return only.empty() || name.find(only) != std::string::npos; };
  for (const int64_t n : {int64_t{1} << 20, int64_t{1} << 24}) {
    const Tensor a = ones({n}), b = zeros({n});
    if (!wanted("memcpy")) break;
    const Timing time =
        measure([&] { std::memcpy(b.raw_data(), a.raw_data(), static_cast<size_t>(a.nbytes())); }, 4.0, 15, clock);
    results.push_back({"memcpy", text_of({n}), "f32", 1, "memcpy", time,
                       2.0 * static_cast<double>(a.nbytes()) / time.median_us / 1e3, 0});
  }
  for (const Case& c : cases()) {
    if (!wanted(c.op)) continue;
    const Timing time = measure(c.run, 4.0, 15, clock);
    results.push_back({c.op, text_of(c.sizes), "f32", threads, "eager", time, c.bytes / time.median_us / 1e3,
                       c.flops / time.median_us / 1e3});
  }
  const codegen::CacheStatistics cache = codegen::cache_statistics();
  if (cache.compiled > 0 && !results.empty()) {
    const double each = cache.compile_ms * 1e3 / static_cast<double>(cache.compiled);
    results.push_back(
        {"compile one kernel", fmt::format("{} kernels", cache.compiled), "", 1, "compile", {each, each}, 0, 0});
  }
  return results;
}

}  // namespace tutti::bench
