// An engine whose first rank takes the requests, over ranks that divide the model: the bits of one rank's forward.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/generate/support/texts.h"
#include "tests/generate/support/tiny_decoders.h"
#include "tests/support/message_of.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/dist/device_mesh.h"
#include "tutti/generate/serve/api_error.h"
#include "tutti/generate/serve/engine_backend.h"
#include "tutti/nn/moe.h"
#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/sum_to.h"
#include "tutti/parallel/expert_parallel.h"
#include "tutti/parallel/tensor_parallel.h"
#include "tutti/runtime/numerics.h"

namespace tutti::generate {
namespace {

// Leaves so small that the tiny models can be cut over two ranks.
struct SmallLeaves {
  codegen::ContractionLeafForTests contraction{4};
  ClassLeafScope classes{8};
  TokenGrainScope grain{2};
};

struct DividedTiny {
  DividedTiny(const std::string& kind, DType dtype, comm::ProcessGroup& group)
      : model(std::make_unique<models::Decoder>(tiny_decoder(kind), kTinyPositions)) {
    seed_all(7);
    if (dtype != DType::f32) model->to(dtype);
    if (!nn::moe_layers(*model).empty())
      parallel::expert_parallel(*model, dist::init_device_mesh("cpu", {group.size()}, {.names = {"ep"}}));
    if (kind != "gemma4-experts") {  // whose 3 key/value heads two ranks cannot divide
      mesh = dist::init_device_mesh("cpu", {group.size()}, {.names = {"tp"}});
      parallel::parallelize_module(*model, mesh, model->tensor_parallel_plan(false));
    }
    nn::initialize(*model);
  }
  dist::Mesh mesh = {};
  std::unique_ptr<models::Decoder> model;
};

std::string name_of_kind(const ::testing::TestParamInfo<std::tuple<std::string, DType>>& info) {
  std::string kind = std::get<0>(info.param);
  std::replace(kind.begin(), kind.end(), '-', '_');
  return kind + "_" + std::string(name_of(std::get<1>(info.param)));
}

class LedEngineBits : public ::testing::TestWithParam<std::tuple<std::string, DType>> {};

TEST_P(LedEngineBits, AreThoseOfOneForwardHoweverRequestsCome) {
  const SmallLeaves leaves;
  const auto& [kind, dtype] = GetParam();
  const ByteTokenizer tokenizer;
  const auto whole = make_tiny(kind, dtype);
  for (unsigned round = 0; round < 6; ++round) {
    std::map<RequestId, Request> asked;
    std::map<RequestId, Text> texts;
    int64_t context = 0;
    const std::optional<DType> codes = kCacheDTypes[round % 3];
    comm::run_ranks(2, [&, kind = kind, dtype = dtype](comm::ProcessGroup& group) {
      const DividedTiny divided(kind, dtype, group);
      std::mt19937 random(round);
      const auto upto = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
      const int64_t heads = kind == "gemma4-experts" ? 8 : 1;  // of a rank, with longer ones counted as more
      const int64_t page_bytes = kPageKeys * position_bytes(1, 10, codes.value_or(dtype)) * 3 * heads;
      Engine engine(*divided.model, tokenizer,
                    {.context = 150 + upto(100),
                     .max_requests = 1 + upto(6),
                     .batch_tokens = 6 + upto(60),
                     .cache_bytes = page_bytes * (upto(4) > 0 ? 9 + upto(6) : 200),
                     .cache_dtype = codes,
                     .compile = round % 2 == 1,
                     .mesh = divided.mesh,
                     .led = &group});
      if (!engine.leads()) return engine.follow();
      context = engine.context();
      std::vector<int32_t> beginning;
      for (int i = 0; i < 70; ++i) beginning.push_back(upto(256));
      for (int i = 2 + upto(6); i > 0; --i) {
        Request request = random_request(random, beginning);
        if (upto(5) == 0) request.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1);
        const RequestId id = engine.submit(request);
        asked[id] = request;
        for (int steps = upto(3); steps > 0; --steps) add(texts, engine.step());
        if (upto(5) == 0) engine.cancel(id);
      }
      while (engine.has_work()) add(texts, engine.step());
      EXPECT_EQ(engine.counters().free_pages, engine.counters().pages);
      engine.end_following();
    });
    for (const auto& [id, request] : asked) {
      const std::string what = fmt::format("round {}, request {}", round, id);
      Text& got = texts[id];
      Text expected = by_forwards(*whole, tokenizer, request, context, codes);
      if (got.finish == Finish::cancelled || got.finish == Finish::deadline) {
        ASSERT_LE(got.tokens.size(), expected.tokens.size()) << what;
        expected.tokens.resize(got.tokens.size());
        expected.log_probabilities.resize(got.tokens.size());
        expected.finish = got.finish;
        expect_same_text(got, expected, false, what);
      } else {
        EXPECT_FALSE(request.deadline) << what;
        expect_same_text(got, expected, request.prompt_log_probabilities, what);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryKind, LedEngineBits,
                         ::testing::Combine(::testing::Values("dense", "window", "windows", "experts",
                                                              "gemma4-experts"),
                                            ::testing::Values(DType::f32, DType::bf16)),
                         name_of_kind);

// In fast mode, which has other bits, heads need not divide: two ranks have two heads and one.
TEST(LedEngine, RanksWithUnequalHeadsWriteInFastMode) {
  for (const bool compile : {false, true}) {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      const NumericsScope fast(NumericsMode::fast);
      const ByteTokenizer tokenizer;
      models::DecoderConfig config = tiny_decoder("dense");
      for (models::LayerConfig& layer : config.layers) layer.attention.heads = layer.attention.kv_heads = 3;
      models::Decoder model(config, kTinyPositions);
      const dist::Mesh mesh = dist::init_device_mesh("cpu", {group.size()}, {.names = {"tp"}});
      seed_all(7);
      parallel::parallelize_module(model, mesh, model.tensor_parallel_plan(false));
      nn::initialize(model);
      Engine engine(model, tokenizer, {.context = 100, .compile = compile, .mesh = mesh, .led = &group});
      if (!engine.leads()) return engine.follow();
      const RequestId id = engine.submit({.prompt = {1, 2, 3}, .sampling = {.temperature = 0}, .max_tokens = 20});
      const Text text = finish(engine)[id];
      EXPECT_EQ(text.error, "");
      EXPECT_EQ(text.tokens.size(), 20U);
      engine.end_following();
    });
  }
}

TEST(LedEngine, RequestsAreSubmittedOnTheFirstRankAlone) {
  const SmallLeaves leaves;
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    const ByteTokenizer tokenizer;
    const DividedTiny divided("dense", DType::f32, group);
    Engine engine(*divided.model, tokenizer, {.context = 100, .mesh = divided.mesh, .led = &group});
    const std::string refused = message_of([&] {
      if (group.rank() == 0) engine.follow();
      else engine.submit({.prompt = {1}});
    });
    EXPECT_EQ(refused, group.rank() == 0 ? "nobody leads this engine; give it the ranks in EngineOptions::led"
                                         : "rank 1 follows rank 0, which takes the requests; submit this one there");
  });
}

// The backend's thread keeps those that follow waiting for less long than they would wait for, and tells of an end.
TEST(LedEngine, ARankThatIsGoneEndsAllRequestsWithItsName) {
  const SmallLeaves leaves;
  std::string told, failure;
  std::atomic<int> failures = 0;
  const auto run = [&] {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      const ByteTokenizer tokenizer;
      const DividedTiny divided("dense", DType::f32, group);
      Engine engine(*divided.model, tokenizer, {.context = 300, .mesh = divided.mesh, .led = &group});
      if (!engine.leads()) {
        for (int steps = 0; steps < 3; ++steps) engine.step();
        throw EnvironmentError("this rank has had enough");
      }
      serve::EngineBackend backend(engine, 8, [&] { ++failures; });
      std::mutex mutex;
      std::condition_variable ended;
      Finish finish = Finish::no;
      backend.submit({.prompt = {1, 2, 3}, .max_tokens = 250}, [&](const Event& event) {
        const std::lock_guard lock(mutex);
        finish = event.finish;
        told = event.error;
        ended.notify_all();
      });
      std::unique_lock lock(mutex);
      ended.wait_for(lock, std::chrono::seconds(60), [&] { return finish != Finish::no; });
      EXPECT_EQ(finish, Finish::failed);
      lock.unlock();
      for (int i = 0; i < 600 && backend.failure().empty(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      failure = backend.failure();
      EXPECT_THROW(backend.submit({.prompt = {1}}, [](const Event&) {}), serve::ApiError);
    });
  };
  EXPECT_THROW(run(), EnvironmentError);
  EXPECT_NE(told.find("rank 1"), std::string::npos) << told;
  EXPECT_NE(failure.find("rank 1"), std::string::npos) << failure;
  EXPECT_EQ(failures, 1);
}

TEST(LedEngine, ARankThatIsGoneWhenTheBackendStopsIsNotedOnly) {
  const SmallLeaves leaves;
  std::string failure;
  std::atomic<int> failures = 0;
  const auto run = [&] {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      const ByteTokenizer tokenizer;
      const DividedTiny divided("dense", DType::f32, group);
      Engine engine(*divided.model, tokenizer, {.context = 300, .mesh = divided.mesh, .led = &group});
      if (!engine.leads()) throw EnvironmentError("this rank has had enough");
      serve::EngineBackend backend(engine, 8, [&] { ++failures; });
      backend.stop();  // before its thread makes the step that keeps others waiting
      failure = backend.failure();
    });
  };
  EXPECT_THROW(run(), EnvironmentError);
  EXPECT_NE(failure.find("rank 1"), std::string::npos) << failure;
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace tutti::generate
