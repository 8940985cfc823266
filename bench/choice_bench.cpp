#include "bench/choice_bench.h"

#include <array>
#include <memory>

#include "tutti/codegen/choice/engine.h"

namespace tutti::bench {
namespace {

using namespace codegen::choice;  // NOLINT: all of this file is about that namespace

struct Types {
  DType a, b, c, accumulator;
};
constexpr Types kTypes[] = {{DType::f64, DType::f64, DType::f64, DType::f64},
                            {DType::f32, DType::f32, DType::f32, DType::f32},
                            {DType::bf16, DType::bf16, DType::bf16, DType::f32},
                            {DType::bf16, DType::bf16, DType::f32, DType::f32},
                            {DType::f16, DType::f16, DType::f16, DType::f32},
                            {DType::f16, DType::f16, DType::f32, DType::f32},
                            {DType::f16, DType::f16, DType::f16, DType::f16},
                            {DType::f8e4m3fn, DType::f8e4m3fn, DType::bf16, DType::f32},
                            {DType::f8e4m3fn, DType::f8e4m3fn, DType::f32, DType::f32},
                            {DType::f8e5m2, DType::f8e4m3fn, DType::bf16, DType::f32},
                            {DType::f8e4m3fn, DType::f8e5m2, DType::bf16, DType::f32},
                            {DType::i8, DType::i8, DType::i32, DType::i32},
                            {DType::u8, DType::i8, DType::i32, DType::i32}};
constexpr Layout kLayouts[] = {Layout::nn, Layout::nt};
constexpr int64_t kSides[] = {16, 32, 64, 128, 256}, kDepths[] = {16, 32, 64, 128}, kClusters[] = {1, 2, 4},
                  kAlignments[] = {4, 16};
constexpr int64_t kMostStages = 5, kSchedules = 5, kSharedMemory = 227 << 10;

struct MadeUpKernel {
  BucketKey key;
  int64_t tile_m, tile_n, tile_k, stages, cluster, alignment, schedule;
};

void add_bucket(const BucketKey& key, std::vector<MadeUpKernel>& kernels) {
  for (const int64_t m : kSides)
    for (const int64_t n : kSides)
      for (const int64_t k : kDepths)
        for (int64_t stages = 1; stages <= kMostStages; ++stages)
          for (const int64_t cluster : kClusters)
            for (const int64_t alignment : kAlignments)
              for (int64_t schedule = 0; schedule < kSchedules; ++schedule)
                kernels.push_back({key, m, n, k, stages, cluster, alignment, schedule});
}

// The candidates of one bucket; `key` may be null: those of all.
std::vector<MadeUpKernel> kernels_of(const BucketKey* key) {
  std::vector<MadeUpKernel> kernels;
  for (const Types& t : kTypes)
    for (const Layout layout : kLayouts) {
      const BucketKey mine{t.a, t.b, t.c, t.accumulator, layout, 0};
      if (key == nullptr || mine == *key) add_bucket(mine, kernels);
    }
  return kernels;
}

bool is_aligned(const MadeUpKernel& kernel, const Signature& call) {
  for (const TensorSignature& t : call.operands)
    if (t.alignment < kernel.alignment || t.sizes[0] % (kernel.alignment / 4) != 0) return false;
  return true;
}

bool is_no_larger_than_the_problem(const MadeUpKernel& kernel, const Signature& call) {
  return kernel.tile_m * kernel.cluster <= call.operands[2].sizes[0] && kernel.tile_n <= call.operands[2].sizes[1] &&
         kernel.tile_k <= call.operands[0].sizes[1];
}

bool fits_shared_memory(const MadeUpKernel& kernel, const Signature& call) {
  const int64_t tile =
      kernel.tile_k * (kernel.tile_m * itemsize(kernel.key.a) + kernel.tile_n * itemsize(kernel.key.b));
  int64_t epilogue = 0;
  for (const EpilogueStep& step : call.epilogue)
    for (const TensorSignature& t : step.tensors)
      epilogue += kernel.tile_n * (t.ndim > 1 ? kernel.tile_m : 1) * itemsize(t.dtype);
  return tile * kernel.stages + epilogue <= kSharedMemory;
}

bool fuses_the_epilogue(const MadeUpKernel& kernel, const Signature& call) {
  for (const EpilogueStep& step : call.epilogue) {
    const bool is_known = step.op == "add" || step.op == "mul" || step.op == "relu" || step.op == "tanh";
    if (!is_known || (kernel.schedule < 3 && !step.tensors.empty()) || (kernel.schedule == 4 && kernel.stages < 2))
      return false;
  }
  return true;
}

bool supports(const MadeUpKernel& kernel, const Signature& call) {
  return bucket_of(call) == kernel.key && is_aligned(kernel, call) && is_no_larger_than_the_problem(kernel, call) &&
         fits_shared_memory(kernel, call) && fuses_the_epilogue(kernel, call);
}

ChoiceRules<MadeUpKernel> rules_of(std::vector<Predicate<MadeUpKernel>> predicates) {
  return {.predicates = std::move(predicates),
          .classify = [](const MadeUpKernel& kernel, const Signature&) { return kernel.cluster > 1 ? 1 : 0; },
          .cost =
              [](const MadeUpKernel& kernel, const Signature& call) {
                const int64_t tiles =
                    (call.operands[2].sizes[0] / kernel.tile_m) * (call.operands[2].sizes[1] / kernel.tile_n);
                const double waves = static_cast<double>((tiles + 131) / 132), m = static_cast<double>(kernel.tile_m),
                             n = static_cast<double>(kernel.tile_n);
                return waves * m * n * (1 + 8 / m + 8 / n) / static_cast<double>(kernel.stages);
              },
          .name =
              [](const MadeUpKernel& k) {
                return fmt::format("{}x{}x{} stages {} cluster {} align {} schedule {}", k.tile_m, k.tile_n, k.tile_k,
                                   k.stages, k.cluster, k.alignment, k.schedule);
              }};
}

Signature linear_layer() {
  constexpr int64_t kRows = 512, kFeatures = 4096;
  alignas(64) static const std::byte somewhere[64] = {};
  const auto matrix = [](int64_t rows, int64_t columns, bool transposed) {
    return tensor_signature(DType::bf16, std::array{rows, columns},
                            std::array{transposed ? int64_t{1} : columns, transposed ? rows : int64_t{1}}, somewhere);
  };
  const TensorSignature bias = tensor_signature(DType::f32, std::array{kFeatures}, std::array{int64_t{1}}, somewhere);
  return {.op = "mm",
          .operands = {matrix(kRows, kFeatures, false), matrix(kFeatures, kFeatures, true),
                       matrix(kRows, kFeatures, false)},
          .classes = 2,
          .epilogue = {{"add", {bias}}, {"relu", {}}}};
}

using Engine = ChoiceEngine<MadeUpKernel>;

struct Chosen {
  int64_t left;
  std::string name;
  bool operator==(const Chosen&) const = default;
};

// The two calls of one mode; the candidates are there before the first.
Chosen time_mode(const std::string& mode, const std::function<Engine()>& engine_of, const Signature& call,
                 ChoiceResult& result) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> first;
  std::unique_ptr<Engine> engine;
  MadeUpKernel winner{};
  const auto never = [](const MadeUpKernel&) { return 0.0; };  // heuristic: no candidate is run
  for (int repetition = 0; repetition < 9; ++repetition) {
    engine.reset(new Engine(engine_of()));
    Signature neighbour = call;  // another row count fills the bucket
    neighbour.operands[0].sizes[0] *= 2;
    (void)engine->choose(neighbour, never);
    const int64_t before = engine->statistics().all_predicate_calls();
    const auto begin = Clock::now();
    winner = engine->choose(call, never);
    first.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    if (repetition == 0)
      result.timings.push_back({mode,
                                "first",
                                static_cast<int64_t>(engine->partition(call)->bucket.size()),
                                engine->statistics().all_predicate_calls() - before,
                                0,
                                {}});
  }
  const auto partition = engine->partition(call);
  const int64_t left = static_cast<int64_t>(partition->classes[0].size() + partition->classes[1].size());
  std::sort(first.begin(), first.end());
  result.timings.back().left = left;
  result.timings.back().time = {first.front(), first[first.size() / 2]};

  const int64_t before = engine->statistics().all_predicate_calls();
  const Timing again = measure([&] { (void)engine->choose(call, never); });
  result.timings.push_back({mode, "second", result.timings.back().candidates,
                            engine->statistics().all_predicate_calls() - before, left, again});
  result.verified &= result.timings.back().predicate_calls == 0;
  return {left, rules_of({}).name(winner)};
}

}  // namespace

ChoiceResult time_choice() {
  ChoiceResult result{{}, true};
  const Signature call = linear_layer();
  const Chosen plain = time_mode(
      "plain",
      [] {
        return Engine([](const BucketKey&) { return kernels_of(nullptr); }, rules_of({{"supports", supports}}), {});
      },
      call, result);
  const Chosen indexed = time_mode(
      "indexed",
      [] {
        return Engine([](const BucketKey& key) { return kernels_of(&key); },
                      rules_of({{"no larger than the problem", is_no_larger_than_the_problem},
                                {"aligned", is_aligned},
                                {"fits shared memory", fits_shared_memory},
                                {"fuses the epilogue", fuses_the_epilogue}}),
                      {});
      },
      call, result);
  result.verified &=
      plain == indexed && plain.left > 0 && result.timings[0].predicate_calls == result.timings[0].candidates;
  return result;
}

}  // namespace tutti::bench
