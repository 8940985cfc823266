// Engines over ranks that divide weights which stay quantized: the bits of one rank's forward.
#include <gtest/gtest.h>

#include "tests/generate/support/texts.h"
#include "tests/support/quantized_model.h"
#include "tests/support/temporary_folder.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/dist/dtensor.h"
#include "tutti/io/byte_tokenizer.h"
#include "tutti/models/published_model.h"
#include "tutti/parallel/tensor_parallel.h"

namespace tutti::generate {
namespace {

// Four ranks can divide its heads, and the rows of its last projections where blocks are small.
models::DecoderConfig divisible_decoder(bool tied) {
  return models::decoder_of("llama", {.flavor = "divisible",
                                      .dim = 256,
                                      .layers = 2,
                                      .heads = 8,
                                      .kv_heads = 4,
                                      .ffn_dim = 1024,
                                      .vocab = 262,
                                      .tied_embeddings = tied,
                                      .head_dim = 64,
                                      .rope_theta = 1e4});
}

struct Opened {
  Opened(const models::PublishedModel& published, DType dtype) : model(published.config(), 400) {
    model.to(dtype);
    model.eval();
    published.load(model, {.freeze = true, .keep_blocks = true});
  }
  models::Decoder model;
};

struct Case {
  int ranks;
  bool tied;
  DType dtype;
};
class QuantizedRankEngine : public ::testing::TestWithParam<Case> {};

TEST_P(QuantizedRankEngine, HasTheBitsOfOneForwardHoweverRequestsCome) {
  const Case& c = GetParam();
  const tutti::testing::TemporaryFolder folder;
  tutti::testing::write_quantized(divisible_decoder(c.tied), tutti::testing::all_block_formats(),
                                  folder / "model.gguf");
  const models::PublishedModel published(folder / "model.gguf");
  Opened whole(published, c.dtype);
  const ByteTokenizer tokenizer;
  for (const bool compile : {false, true}) {
    std::map<RequestId, Request> asked;
    std::map<RequestId, Text> texts;
    int64_t context = 0;
    comm::run_ranks(c.ranks, [&](comm::ProcessGroup& group) {
      Opened divided(published, c.dtype);
      const dist::Mesh mesh = dist::init_device_mesh("cpu", {group.size()}, {.names = {"tp"}});
      parallel::parallelize_module(divided.model, mesh, divided.model.tensor_parallel_plan(false));
      std::mt19937 random(5);
      const auto upto = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
      Engine engine(
          divided.model, tokenizer,
          {.context = 200, .max_requests = 3, .batch_tokens = 40, .compile = compile, .mesh = mesh, .led = &group});
      if (!engine.leads()) return engine.follow();
      context = engine.context();
      std::vector<int32_t> beginning;
      for (int i = 0; i < 70; ++i) beginning.push_back(upto(256));
      for (int i = 0; i < 4; ++i) {
        const Request request = random_request(random, beginning);
        asked[engine.submit(request)] = request;
        for (int steps = upto(3); steps > 0; --steps) add(texts, engine.step());
      }
      while (engine.has_work()) add(texts, engine.step());
      engine.end_following();
    });
    for (const auto& [id, request] : asked)
      expect_same_text(texts[id], by_forwards(whole.model, tokenizer, request, context),
                       request.prompt_log_probabilities, fmt::format("{}, request {}", compile, id));
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, QuantizedRankEngine,
                         ::testing::Values(Case{2, true, DType::f32}, Case{4, false, DType::f32},
                                           Case{2, false, DType::bf16}, Case{4, true, DType::bf16}),
                         [](const ::testing::TestParamInfo<Case>& info) {
                           return fmt::format("Tp{}{}{}", info.param.ranks, info.param.tied ? "Tied" : "",
                                              info.param.dtype == DType::f32 ? "" : "InBf16");
                         });

}  // namespace
}  // namespace tutti::generate
