// Engines that run a model from a package, without its weights: texts and log-probabilities of the model, bit by bit.
#include <gtest/gtest.h>

#include "tests/generate/support/texts.h"
#include "tests/generate/support/tiny_decoders.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/generate/packaged_forward.h"
#include "tutti/package/package.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::generate {
namespace {

PackagedForwardOptions small() {
  return {.context = 200, .most_tokens = 33, .step = 16, .levels = {codegen::cpu_target()}};
}

TEST(PackagedEngine, HasTheTextsOfTheModel) {
  const testing::TemporaryFolder folder;
  const ByteTokenizer tokenizer;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::string kind : {"dense", "window", "windows", "experts", "gemma4", "gemma4-experts"}) {
      for (const std::optional<DType> cache : {std::optional<DType>(), std::optional(DType::i8)}) {
        if (cache && (dtype == DType::bf16) == (kind == "dense")) continue;
        const auto model = make_tiny(kind, dtype);
        PackagedForwardOptions options = small();
        options.cache_dtype = cache;
        package_forward(*model, folder / "decode", options);
        models::Decoder empty(tiny_decoder(kind), kTinyPositions);  // without weights
        if (dtype != DType::f32) empty.to(dtype);
        Engine engine(empty, tokenizer,
                      {.context = 190, .max_requests = 1, .packaged = PackagedForward::open(folder / "decode")});
        for (int round = 0; round < 4; ++round) {
          RankContext context({.threads = 1 + round % 3});
          const RankContext::Scope scope(context);
          Request request{.sampling = {.temperature = round % 2 == 0 ? 0.0 : 0.9, .seed = 3},
                          .max_tokens = 20,
                          .top_log_probabilities = 3};
          for (int i = 0; i < 1 + (round * 37 + static_cast<int>(kind.size()) * 5) % 90; ++i)
            request.prompt.push_back((i * 31 + round) % 256);
          const RequestId id = engine.submit(request);
          std::map<RequestId, Text> texts;
          while (engine.has_work()) {
            add(texts, engine.step());
            engine.cache().poison(std::nan(""));
          }
          expect_same_text(texts[id], by_forwards(*model, tokenizer, request, engine.context(), cache), false,
                           fmt::format("{} {} round {}", kind, name_of(dtype), round));
        }
      }
    }
  }
}

TEST(PackagedEngine, SaysWhatItDoesNotDo) {
  const testing::TemporaryFolder folder;
  const ByteTokenizer tokenizer;
  const auto model = make_tiny("dense");
  package_forward(*model, folder / "decode", small());
  const auto packaged = PackagedForward::open(folder / "decode");
  EXPECT_EQ(packaged->context(), 256);
  const auto refusal = [&](EngineOptions options) {
    options.packaged = packaged;
    return message_of([&] { Engine(*model, tokenizer, options); });
  };
  for (const std::string& text : {refusal({.max_requests = 2}), refusal({.max_requests = 1, .cache_dtype = DType::i8}),
                                  refusal({.max_requests = 1, .compile = true})})
    EXPECT_NE(text.find("an engine of a packaged model runs one request at once"), std::string::npos) << text;
  Engine engine(*model, tokenizer, {.max_requests = 1, .packaged = packaged});
  EXPECT_EQ(engine.context(), 256);
  const std::string text =
      message_of([&] { engine.submit({.prompt = {1, 2}, .max_tokens = 1, .prompt_log_probabilities = true}); });
  EXPECT_NE(text.find("gives no log-probabilities of prompts"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::generate
