// Engines that run a model from a package, without its weights: texts and log-probabilities of the model, bit by bit.
#include <gtest/gtest.h>

#include "tests/generate/support/texts.h"
#include "tests/generate/support/tiny_decoders.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/generate/packaged_forward.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/reduction.h"
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

// Requests come and go: some batches hold one text, some as many as the package takes at once, some more.
TEST(PackagedEngine, HasTheTextsOfTheModelInACrowd) {
  const testing::TemporaryFolder folder;
  const ByteTokenizer tokenizer;
  std::mt19937 random(7);
  std::vector<int32_t> beginning(70);
  for (int32_t& id : beginning) id = static_cast<int32_t>(random() % 256);
  for (const std::string kind : {"dense", "window", "gemma4-experts"}) {
    for (const int64_t texts : {1, 3}) {
      const std::optional<DType> cache = kind == "window" ? std::optional(DType::i8) : std::nullopt;
      const auto model = make_tiny(kind);
      PackagedForwardOptions options = small();
      options.texts = texts, options.cache_dtype = cache;
      package_forward(*model, folder / "decode", options);
      models::Decoder empty(tiny_decoder(kind), kTinyPositions);
      for (const int64_t max_requests : {2, 3, 8}) {
        RankContext context({.threads = static_cast<int>(1 + max_requests % 2)});
        const RankContext::Scope scope(context);
        const auto packaged = PackagedForward::open(folder / "decode");
        EXPECT_EQ(packaged->texts(), texts);
        Engine engine(empty, tokenizer,
                      {.context = 190,
                       .max_requests = max_requests,
                       .batch_tokens = 40 + 30 * max_requests,
                       .interleaved_tokens = max_requests == 3 ? 20 : 0,
                       .packaged = packaged});
        std::map<RequestId, Request> requests;
        std::map<RequestId, Text> got;
        for (int arriving = 9; arriving > 0 || engine.has_work();) {
          for (int now = static_cast<int>(random() % 4); now > 0 && arriving > 0; --now, --arriving) {
            Request request = random_request(random, beginning);
            request.prompt_log_probabilities = false;
            requests[engine.submit(request)] = request;
          }
          add(got, engine.step());
          engine.cache().poison(std::nan(""));
        }
        ASSERT_EQ(got.size(), requests.size());
        for (const auto& [id, request] : requests)
          expect_same_text(got[id], by_forwards(*model, tokenizer, request, engine.context(), cache), false,
                           fmt::format("{}, {} texts, {} requests, request {}", kind, texts, max_requests, id));
      }
    }
  }
}

TEST(PackagedForward, WritesTokensOfManyTextsInOneCall) {
  const testing::TemporaryFolder folder;
  const auto model = make_tiny("dense");
  for (const int64_t texts : {1, 4}) {
    PackagedForwardOptions options = small();
    options.texts = texts;
    package_forward(*model, folder / "decode", options);
    const auto packaged = PackagedForward::open(folder / "decode");
    Engine engine(*model, ByteTokenizer(), {.context = 190, .max_requests = 5, .packaged = packaged});
    for (int32_t id = 1; id < 6; ++id) engine.submit({.prompt = {id}, .max_tokens = 20});
    finish(engine);
    EXPECT_EQ(packaged->calls(), texts == 1 ? 5 * 20 : 2 * 20);  // four texts and one
  }
}

TEST(PackagedForward, OpensNoOtherPackageOfThatName) {
  const testing::TemporaryFolder folder;
  const Tensor x = Tensor::of<int32_t>({1, 2}, {1, 2}), w = Tensor::of<float>({3, 4});
  const PackageOptions options{.name = "decode",
                               .dynamic = {{.name = "tokens", .dims = {{0, 1}}, .least = 1, .most = 2},
                                           {.name = "texts", .dims = {{0, 0}}, .apart_from = "tokens"},
                                           {.name = "pages", .dims = {{1, 0}}, .least = 8, .most = 8}},
                               .levels = {codegen::cpu_target()},
                               .state = {{"w", w}}};
  const auto fn = [&](const Tensor& tokens, const Tensor& pages) { return add(mul(sum(tokens), sum(pages)), sum(w)); };
  package(folder / "decode", fn, options, x, Tensor::of<int32_t>({1, 2, 3, 4, 5, 6, 7, 8}));
  const std::string text = message_of([&] { PackagedForward::open(folder / "decode"); });
  EXPECT_NE(text.find("holds 'decode', which is no forward of a model"), std::string::npos) << text;
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
  for (const std::string& text : {refusal({.cache_dtype = DType::i8}), refusal({.compile = true})})
    EXPECT_NE(text.find("an engine of a packaged model runs on one rank, uncompiled, with the package's cache of f32"),
              std::string::npos)
        << text;
  const std::string many = refusal({.context = 200, .max_requests = 300});
  EXPECT_NE(many.find("300 requests and 256 tokens in a batch, as many as the package allows"), std::string::npos)
      << many;
  for (const int64_t texts : {0, 129}) {
    PackagedForwardOptions wrong = small();
    wrong.texts = texts;
    EXPECT_NE(message_of([&] {
                package_forward(*model, folder / "none", wrong);
              }).find(fmt::format("package: {} texts at once; expected 1 to 128", texts)),
              std::string::npos);
  }
  Engine engine(*model, tokenizer, {.packaged = packaged});
  EXPECT_EQ(engine.context(), 256);
  const std::string text =
      message_of([&] { engine.submit({.prompt = {1, 2}, .max_tokens = 1, .prompt_log_probabilities = true}); });
  EXPECT_NE(text.find("gives no log-probabilities of prompts"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::generate
