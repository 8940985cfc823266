// The engine with weights that stay quantized has the bits of one forward of the same model.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/generate/support/texts.h"
#include "tests/support/quantized_model.h"
#include "tests/support/temporary_folder.h"
#include "tutti/io/byte_tokenizer.h"
#include "tutti/models/published_gguf.h"
#include "tutti/models/published_model.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::generate {
namespace {

void expect_bits_of_one_forward(const models::PublishedModel& published) {
  models::Decoder model(published.config(), 400);
  published.load(model, {.freeze = true, .keep_blocks = true});
  const ByteTokenizer tokenizer;
  std::mt19937 random(5);
  const auto upto = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (const int threads : {1, 2, 4}) {
    RankContext context({.threads = threads});
    const RankContext::Scope scope(context);
    Engine engine(model, tokenizer, {.context = 200, .max_requests = 3, .batch_tokens = 40});
    std::vector<int32_t> beginning;
    for (int i = 0; i < 70; ++i) beginning.push_back(upto(256));
    std::map<RequestId, Request> asked;
    std::map<RequestId, Text> texts;
    for (int i = 0; i < 5; ++i) {
      const Request request = random_request(random, beginning);
      asked[engine.submit(request)] = request;
      for (int steps = upto(3); steps > 0; --steps) add(texts, engine.step());
    }
    while (engine.has_work()) add(texts, engine.step());
    for (const auto& [id, request] : asked)
      expect_same_text(texts[id], by_forwards(model, tokenizer, request, engine.context()),
                       request.prompt_log_probabilities, fmt::format("{} threads, request {}", threads, id));
  }
}

TEST(QuantizedEngine, HasTheBitsOfOneForwardHoweverRequestsCome) {
  const tutti::testing::TemporaryFolder folder;
  tutti::testing::write_quantized(tutti::testing::quantizable_decoder(true, 2), tutti::testing::all_block_formats(),
                                  folder / "model.gguf");
  expect_bits_of_one_forward(models::PublishedModel(folder / "model.gguf"));
}

TEST(QuantizedEngine, HasTheBitsOfOneForwardOfWhatWasConverted) {
  const tutti::testing::TemporaryFolder folder;
  tutti::testing::write_quantized(tutti::testing::quantizable_decoder(false, 2), {BlockFormat::q8_0},
                                  folder / "model.gguf");
  models::write_published_gguf(models::PublishedModel(folder / "model.gguf"), folder / "converted.gguf",
                               {.type = models::FileType::q4_k_m});
  expect_bits_of_one_forward(models::PublishedModel(folder / "converted.gguf"));
}

}  // namespace
}  // namespace tutti::generate
