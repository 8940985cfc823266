#include "bench/generate_bench.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "bench/measure.h"
#include "bench/process_memory.h"
#include "tutti/core/error.h"
#include "tutti/core/philox.h"
#include "tutti/generate/engine.h"
#include "tutti/models/decoder.h"
#include "tutti/models/family.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/ready_model.h"

namespace tutti::bench {
namespace {

std::unique_ptr<models::Decoder> open_model(const GenerateProblem& problem, int64_t positions) {
  if (std::filesystem::exists(problem.model))
    return train::open_published(problem.model, positions, problem.dtype, problem.keep_blocks).model;
  TUTTI_CHECK(!problem.keep_blocks,
              "bench generate: --quantized needs a GGUF file with quantized weights; '{}' is no file", problem.model);
  const size_t slash = problem.model.find('/');
  TUTTI_CHECK(slash != std::string::npos,
              "bench generate: '{}' is neither a published model nor family/flavor, such as qwen3/0.6B", problem.model);
  auto model = std::make_unique<models::Decoder>(
      models::flavor_named(problem.model.substr(0, slash), problem.model.substr(slash + 1)), positions);
  model->to(problem.dtype);
  seed_all(1);
  nn::initialize(*model);
  // Weights in one dtype, as files hold them, without f32 masters.
  for (const nn::NamedParameter& p : model->named_parameters()) p.parameter.freeze(to_contiguous(p.parameter.use()));
  return model;
}

std::vector<int32_t> random_tokens(int64_t count, int64_t vocab, uint32_t stream) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    const auto block = philox4x32({static_cast<uint32_t>(i), stream, 0, 0}, philox_key(17));
    tokens.push_back(static_cast<int32_t>(block[0] % static_cast<uint64_t>(vocab)));
  }
  return tokens;
}

double seconds() { return now_us(MeasuredTime::wall) * 1e-6; }

struct GenerateRuns {
  const GenerateProblem& problem;
  models::Decoder& model;
  int64_t context;

  struct Run {
    double seconds;
    int64_t tokens;
  };
  // Reads `prompt` tokens and then writes `generated` ones, for each of the requests: the time of reading where nothing
  // is written; otherwise that of writing from when every request has a token, and the tokens written since.
  Run run(generate::Engine& engine, int64_t prompt, int64_t generated, int64_t requests) const {
    for (int64_t r = 0; r < requests; ++r) {
      generate::Request request{.prompt = random_tokens(prompt, model.vocab_size(), static_cast<uint32_t>(r))};
      request.sampling.temperature = 0;
      request.max_tokens = generated + 1;  // the first one comes with the prompt
      engine.submit(std::move(request));
    }
    double begin = seconds();
    std::set<generate::RequestId> writing;
    int64_t tokens = 0, before = 0;
    while (engine.has_work()) {
      for (const generate::Event& event : engine.step()) {
        TUTTI_CHECK(event.finish != generate::Finish::failed, "bench generate: {}", event.error);
        if (!event.token) continue;
        ++tokens;
        writing.insert(event.request);
      }
      if (before == 0 && generated > 0 && std::ssize(writing) == requests) {
        begin = seconds();
        before = tokens;
      }
    }
    return {seconds() - begin, generated == 0 ? requests * prompt : tokens - before};
  }

  GenerateRow measure(GenerateRow row, double* cache_mbytes) const {
    const int64_t read = row.generated == 0 ? row.prompt : row.depth + 1;
    std::vector<int32_t> ids(static_cast<size_t>(model.vocab_size()));
    std::iota(ids.begin(), ids.end(), 0);
    generate::EngineOptions options{.context = context, .max_requests = row.requests, .shares_prefixes = false};
    options.compile = problem.compile;
    options.cache_dtype = problem.cache_dtype;
    generate::Engine engine(model, std::move(ids), options);
    run(engine, read, row.generated, row.requests);
    std::vector<double> rates;
    for (int repeat = 0; repeat < problem.repeats; ++repeat) {
      const Run timed = run(engine, read, row.generated, row.requests);
      row.samples_s.push_back(timed.seconds);
      rates.push_back(static_cast<double>(timed.tokens) / timed.seconds);
    }
    *cache_mbytes = std::max(*cache_mbytes, static_cast<double>(engine.counters().cache_bytes) * 1e-6);
    const auto count = static_cast<double>(rates.size());
    row.avg_ts = std::accumulate(rates.begin(), rates.end(), 0.0) / count;
    double squares = 0;
    for (const double rate : rates) squares += (rate - row.avg_ts) * (rate - row.avg_ts);
    row.stddev_ts = rates.size() > 1 ? std::sqrt(squares / (count - 1)) : 0;
    return row;
  }
};

double bytes_of(const nn::Parameter& p) {
  if (!p.is_materialized()) return 0;
  return static_cast<double>(p.holds_blocks() ? p.blocks().nbytes() : p.numel() * itemsize(p.use_dtype()));
}

// `quantized`: the bytes of layers that have given up their parameters.
double weight_bytes(const models::Decoder& model, double quantized) {
  double bytes = quantized;
  for (const nn::NamedParameter& p : model.named_parameters()) bytes += bytes_of(p.parameter);
  return bytes;
}

// The bytes that the keys and values of a position take.
int64_t layer_bytes(const models::LayerConfig& layer, DType dtype) {
  return generate::position_bytes(layer.attention.kv_heads, layer.attention.head_dim, dtype);
}

// The table of embeddings is looked up, not read, where the head is another one.
double bytes_of_step(const models::Decoder& model, double quantized, const GenerateRow& row, DType dtype) {
  const models::DecoderConfig& c = model.config();
  double bytes = weight_bytes(model, quantized);
  if (!c.tied_embeddings) bytes -= bytes_of(model.named_parameters().front().parameter);
  for (const models::LayerConfig& layer : c.layers) {
    const int64_t all = row.depth + row.generated / 2, window = layer.attention.window;
    const int64_t keys = window > 0 ? std::min(all, window) : all;
    bytes += static_cast<double>(row.requests * keys * layer_bytes(layer, dtype));
  }
  return bytes;
}

}  // namespace

GenerateResult run_generate_bench(const GenerateProblem& problem) {
  RankContext rank({.threads = problem.threads});
  const RankContext::Scope scope(rank);
  const auto largest = [](const std::vector<int64_t>& list) {
    return list.empty() ? 0 : *std::max_element(list.begin(), list.end());
  };
  const int64_t context = std::max(largest(problem.prompts), largest(problem.depths) + largest(problem.generated)) + 2;
  const auto model = open_model(problem, context);
  double quantized = 0;
  if (problem.quantize) {
    TUTTI_CHECK(
        !problem.keep_blocks,
        "bench generate: --quantize makes codes of numbers and --quantized keeps the blocks of a file; give one");
    for (const nn::QuantizedLayer& layer : nn::quantize_(*model, {.kind = *problem.quantize}))
      quantized += static_cast<double>(layer.nbytes_after);
  }
  const GenerateRuns bench{problem, *model, context};
  GenerateResult result{.parameters = models::parameter_count(model->config())};
  const DType cached = problem.cache_dtype.value_or(problem.dtype);
  for (const models::LayerConfig& layer : model->config().layers)
    if (!layer.attention.shared_layer) result.cache_bytes_per_token += layer_bytes(layer, cached);
  for (const int64_t n : problem.prompts)
    result.rows.push_back(bench.measure({.test = fmt::format("pp{}", n), .prompt = n}, &result.cache_mbytes));
  for (const int64_t n : problem.generated) {
    for (const int64_t depth : problem.depths) {
      for (const int64_t requests : problem.requests) {
        std::string test = fmt::format("tg{}", n);
        if (depth > 0) test += fmt::format(" @ d{}", depth);
        if (requests > 1) test += fmt::format(" x {}", requests);
        GenerateRow row =
            bench.measure({.test = test, .generated = n, .depth = depth, .requests = requests}, &result.cache_mbytes);
        row.gbytes_per_s =
            bytes_of_step(*model, quantized, row, cached) * row.avg_ts / static_cast<double>(requests) * 1e-9;
        for (const GenerateRow& other : result.rows)
          if (other.generated == n && other.depth == depth && other.requests == 1)
            row.over_one = row.avg_ts / other.avg_ts;
        result.rows.push_back(std::move(row));
      }
    }
  }
  result.weights_mbytes = weight_bytes(*model, quantized) * 1e-6;
  result.rss_mbytes = process_memory().now_mbytes;
  return result;
}

}  // namespace tutti::bench
