// What the engine takes from the heap while it decodes: nothing but what its two ops on logits take, beside the ops of
// the model. Counts every call of operator new of a thread. Sanitizers have an operator new of their own, and see every
// object: with them there is nothing to count.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "tests/generate/support/tiny_decoders.h"
#include "tutti/autograd/tape.h"
#include "tutti/generate/engine.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/gather.h"
#include "tutti/parallel/tensor_parallel.h"

namespace {
thread_local int64_t allocations = 0;
thread_local bool counts = true;
}  // namespace

[[gnu::noinline]] void* operator new(size_t size) {
  allocations += counts ? 1 : 0;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tutti::generate {
namespace {

struct Pause {
  Pause() { counts = false; }
  ~Pause() { counts = true; }
};

// A decoder in which nothing is counted.
class Uncounted final : public models::LanguageModel {
 public:
  explicit Uncounted(const models::DecoderConfig& config) : model_(this, "model", config, kTinyPositions) {}

  Tensor forward(const models::TokenBatch& batch, const models::ForwardOptions& options) const override {
    return model_->forward(batch, options);
  }
  Tensor losses(const models::TokenBatch& batch, const Tensor& labels,
                const models::ForwardOptions& options) const override {
    return model_->losses(batch, labels, options);
  }
  Tensor embed(const models::TokenBatch& batch) const override {
    const Pause pause;
    return model_->embed(batch);
  }
  Tensor blocks(const Tensor& x, const models::TokenBatch& batch, int64_t first, int64_t end,
                const models::ForwardOptions& options) const override {
    const Pause pause;
    return model_->blocks(x, batch, first, end, options);
  }
  Tensor head_logits(const Tensor& x) const override {
    const Pause pause;
    return model_->head_logits(x);
  }
  Tensor head_losses(const Tensor& x, const Tensor& labels, const models::ForwardOptions& options) const override {
    return model_->head_losses(x, labels, options);
  }
  int64_t vocab_size() const override { return model_->vocab_size(); }
  double training_flops_per_token(int64_t length) const override { return model_->training_flops_per_token(length); }
  const models::DecoderConfig& config() const override { return model_->config(); }
  std::vector<parallel::PlanEntry> tensor_parallel_plan(bool sequence_parallel) const override {
    return model_->tensor_parallel_plan(sequence_parallel);
  }
  void check_tensor_parallel(int64_t degree, int64_t tokens, int64_t grain) const override {
    model_->check_tensor_parallel(degree, tokens, grain);
  }

 private:
  nn::Child<models::Decoder> model_;
};

struct HeapCase {
  const char* name;
  const char* model;
  SamplingOptions sampling;
};
void PrintTo(const HeapCase& c, std::ostream* out) { *out << c.name; }

// What the ops take that the engine calls itself.
int64_t taken_by_ops(int64_t rows, int64_t dim, int64_t vocab) {
  const NoGradScope no_grad;
  const Tensor x = Tensor::of(std::vector<float>(static_cast<size_t>(rows * dim)), {rows, dim}),
               logits = Tensor::of(std::vector<float>(static_cast<size_t>(rows * vocab)), {rows, vocab}),
               ids = Tensor::of(std::vector<int32_t>(static_cast<size_t>(rows)));
  int64_t taken = 0;
  for (int i = 0; i < 5; ++i) {
    const int64_t before = allocations;
    index_select(x, 0, ids);
    cross_entropy(logits, ids);
    taken = allocations - before;
  }
  return taken;
}

struct EngineHeap : testing::TestWithParam<HeapCase> {};

TEST_P(EngineHeap, SteadyDecodingTakesNothing) {
  RankContext rank({.threads = 1});
  const RankContext::Scope scope(rank);
  const ByteTokenizer tokenizer;
  Uncounted model(tiny_decoder(GetParam().model));
  seed_all(7);
  nn::initialize(model);
  Engine engine(model, tokenizer, {.context = 300, .max_requests = 3});
  for (int32_t r = 0; r < 3; ++r) {
    // Their lengths are equal, so that their pages begin together.
    Request request{.prompt = {r, 5, 6, 7, 8}, .sampling = GetParam().sampling, .max_tokens = 200};
    engine.submit(std::move(request));
  }
  const int64_t taken = taken_by_ops(3, model.config().dim, model.vocab_size());
  for (int64_t length = 5; length < 150; ++length) {
    const int64_t before = allocations;
    ASSERT_EQ(engine.step().size(), 3U);
    // A page that has been filled is remembered, with its tokens, and every eighth makes tables longer.
    if (length >= 70 && length % kPageKeys > 1 && length % (8 * kPageKeys) > 2) {
      ASSERT_EQ(allocations - before, taken) << length;
    }
  }
}

// Compiled, the tensors between the ops of a model are where they were at the step before.
TEST(CompiledEngineHeap, TakesLessThanOpByOp) {
  RankContext rank({.threads = 1});
  const RankContext::Scope scope(rank);
  const ByteTokenizer tokenizer;
  const auto model = make_tiny("dense");
  const auto taken = [&](bool compile) {
    Engine engine(*model, tokenizer, {.context = 300, .max_requests = 3, .compile = compile});
    for (int32_t r = 0; r < 3; ++r)
      engine.submit({.prompt = {r, 5, 6, 7, 8}, .sampling = {.temperature = 0}, .max_tokens = 200});
    int64_t last = 0;
    for (int64_t length = 5; length < 126; ++length) {
      const int64_t before = allocations;
      EXPECT_EQ(engine.step().size(), 3U);
      last = allocations - before;
    }
    return last;
  };
  const int64_t eager = taken(false), compiled = taken(true);
  EXPECT_LE(compiled, eager * 2 / 3) << "op by op " << eager;
}

INSTANTIATE_TEST_SUITE_P(, EngineHeap,
                         testing::Values(HeapCase{"Greedy", "dense", {.temperature = 0}},
                                         HeapCase{"Drawn", "dense", {.temperature = 0.8, .top_k = 20, .top_p = 0.9}},
                                         HeapCase{"Windows", "window", {.temperature = 0.8}}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tutti::generate

#endif
