#include "bench/package_bench.h"

#include <chrono>
#include <cstring>
#include <fstream>

#include "tutti/codegen/cpu_target.h"
#include "tutti/deploy/package.h"
#include "tutti/graph/compile.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/packed_linear.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/package/package.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;

// name: other values for each, or equal weights would be stored once.
Tensor random(const std::string& name, const Extents& sizes, double scale) {
  return uniform(to_shape(sizes), random_key(name), -scale, scale);
}

// Packages `fn` for x, and measures calls of the package and of the compiled function in turns.
template <class Fn>
PackageRow measure(const std::string& folder, const char* name, const std::string& shape, const Fn& fn, const Tensor& x,
                   double total_ms) {
  PackageRow row{.function = name, .shape = shape, .path = folder + "/" + name + ".tutti"};
  const auto compiled = compile(fn, {.name = name});
  const PackageReport report = package(row.path, fn, {.name = name, .levels = {codegen::cpu_target()}}, x);
  row.file_bytes = report.file_nbytes, row.constant_bytes = report.constant_nbytes;
  const auto opened = deploy::Package::open(row.path);
  Tensor live = compiled(x), packaged = opened->run({{x}})[0];
  row.same_bits = std::memcmp(live.raw_data(), packaged.raw_data(), static_cast<size_t>(live.nbytes())) == 0;
  const std::vector<Timing> times =
      measure_in_turns({[&] { live = compiled(x); }, [&] { packaged = opened->run({{x}})[0]; }}, total_ms);
  row.live = times[0], row.packaged = times[1];
  row.opened = opened;
  return row;
}

// A weight [out, in] as inference holds it that multiplies few rows (nn::PackedLinears).
class Packed {
 public:
  explicit Packed(const Tensor& weight) : weight_(pack_weight(weight)), out_(weight.extent(0)) {}
  Tensor operator()(const Tensor& x) const { return packed_linear(x, weight_, out_); }

 private:
  Tensor weight_;
  int64_t out_;
};

PackageRow mlp(const std::string& folder, double total_ms) {
  const Tensor up = random("up", {256, 64}, 0.1), bias = random("bias", {256}, 0.1),
               down = random("down", {16, 256}, 0.1);
  const auto fn = [&](const Tensor& x) { return linear(gelu(add(linear(x, up), bias)), down); };
  return measure(folder, "mlp", "8 x 64, 256, 16", fn, random("x", {8, 64}, 1), total_ms);
}

PackageRow block(const std::string& folder, double total_ms) {
  constexpr int64_t kRows = 4, kLength = 256, kDim = 512, kHeads = 8, kHidden = 1536;
  const auto weight = [](const char* name, int64_t out, int64_t in) { return random(name, {out, in}, 0.05); };
  const Tensor norm1 = random("norm1", {kDim}, 1), norm2 = random("norm2", {kDim}, 1), wq = weight("wq", kDim, kDim),
               wk = weight("wk", kDim, kDim), wv = weight("wv", kDim, kDim), wo = weight("wo", kDim, kDim),
               gate = weight("gate", kHidden, kDim), up = weight("up", kHidden, kDim),
               down = weight("down", kDim, kHidden);
  const auto fn = [&](const Tensor& x) {
    const Tensor n = rms_norm(x, norm1);
    const auto heads = [&](const Tensor& w) { return reshape(linear(n, w), {kRows, kLength, kHeads, kDim / kHeads}); };
    const Tensor seen = sdpa(heads(wq), heads(wk), heads(wv), {.causal = true});
    const Tensor h = add(x, linear(reshape(seen, {kRows * kLength, kDim}), wo));
    const Tensor m = rms_norm(h, norm2);
    return add(h, linear(swiglu(linear(m, gate), linear(m, up)), down));
  };
  return measure(folder, "block", fmt::format("{} x {}, {}, {}", kRows, kLength, kDim, kHidden), fn,
                 random("x", {kRows * kLength, kDim}, 1), total_ms);
}

// 200 MB of weights, read once by a call.
PackageRow wide(const std::string& folder, double total_ms) {
  constexpr int64_t kDim = 2048, kLayers = 12;
  std::vector<Packed> weights;
  for (int64_t i = 0; i < kLayers; ++i) weights.emplace_back(random(fmt::format("w{}", i), {kDim, kDim}, 0.04));
  const auto fn = [&](const Tensor& x) {
    Tensor y = x;
    for (const Packed& w : weights) y = gelu(w(y));
    return y;
  };
  return measure(folder, "wide", fmt::format("4 x {}, {} layers", kDim, kLayers), fn, random("x", {4, kDim}, 1),
                 total_ms);
}

}  // namespace

std::vector<PackageRow> run_package_bench(const std::string& folder, const std::string& only, int threads,
                                          double total_ms) {
  RankContext::current().set_threads(threads);
  std::vector<PackageRow> rows;
  using Make = PackageRow (*)(const std::string& folder, double total_ms);
  for (const auto& [name, make] : {std::pair<const char*, Make>{"mlp", mlp}, {"block", block}, {"wide", wide}}) {
    if (only.empty() || only == name) rows.push_back(make(folder, total_ms));
  }
  return rows;
}

void add_pages(const std::string& path, PackageOpening& opening) {
  std::ifstream maps("/proc/self/smaps");
  bool is_of_file = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') != std::string::npos && line.find("kB") == std::string::npos)
      is_of_file = line.size() >= path.size() && line.compare(line.size() - path.size(), path.size(), path) == 0;
    if (!is_of_file) continue;
    if (line.starts_with("Rss:")) opening.rss_bytes += 1024 * std::stoll(line.substr(4));
    if (line.starts_with("Pss:")) opening.pss_bytes += 1024 * std::stoll(line.substr(4));
  }
}

PackageOpening open_package_once(const std::string& path, int threads) {
  RankContext::current().set_threads(threads);
  const Clock::time_point start = Clock::now();
  const auto opened = deploy::Package::open(path);
  const double open_ms = ms_since(start);
  const deploy::Manifest& manifest = opened->manifest();
  std::vector<Tensor> arguments;
  for (const deploy::PackageArgument& input : manifest.inputs) {
    arguments.push_back(Tensor::empty(manifest.extents_of(input, manifest.sizes_of(0)), input.dtype));
    std::memset(arguments.back().raw_data(), 0, static_cast<size_t>(arguments.back().nbytes()));
  }
  opened->run(arguments);
  PackageOpening opening{.open_ms = open_ms, .first_ms = ms_since(start)};
  add_pages(path, opening);
  return opening;
}

}  // namespace tutti::bench
