#include "bench/packaged_model_bench.h"

#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>

#include "tutti/core/error.h"
#include "tutti/generate/packaged_forward.h"
#include "tutti/generate/paged_cache.h"
#include "tutti/models/decoder.h"
#include "tutti/models/package_file.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/ready_model.h"

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kReadTokens = 65, kWriteKeys = 256;

struct Call {
  const char* name;
  int64_t tokens, keys;
};
constexpr Call kCalls[] = {{"read", kReadTokens, 0}, {"write", 1, kWriteKeys}};

std::string package_in(const std::string& folder) {
  return (std::filesystem::path(folder) / models::kPackageFile).string();
}

// The description beside the package; the cache depends on it.
std::unique_ptr<models::Decoder> description_in(const std::string& folder) {
  TUTTI_CHECK(std::filesystem::exists(package_in(folder)),
              "bench package: {} holds no packaged model; tutti package MODEL TARGET writes one", folder);
  return train::open_without_weights(folder, kWriteKeys + 1).model;
}

// One text in the cache of an opened package.
class PackagedText {
 public:
  PackagedText(const std::string& folder, const models::Decoder& description)
      : forward_(generate::PackagedForward::open(package_in(folder))),
        cache_(description.config(), forward_->cache_options()) {
    TUTTI_CHECK(forward_->context() > kWriteKeys && cache_.reserve(sequence_, kWriteKeys + 1),
                "bench package: the package in {} holds texts of {} tokens; {} are needed", folder, forward_->context(),
                kWriteKeys + 1);
  }

  // The tokens at these positions, of whose last one the logits are asked for.
  generate::BatchInputs inputs(int64_t first, int64_t count) {
    std::vector<int32_t> tokens, positions;
    for (int64_t position = first; position < first + count; ++position) {
      tokens.push_back(benchmark_token(position, forward_->vocab_size()));
      positions.push_back(static_cast<int32_t>(position));
    }
    generate::BatchInputs inputs{.tokens = Tensor::of(tokens),
                                 .positions = Tensor::of(positions),
                                 .first_keys = Tensor::of(std::vector<int32_t>(tokens.size(), 0)),
                                 .rows = Tensor::of<int32_t>({static_cast<int32_t>(count - 1)})};
    cache_.describe(std::vector<generate::BatchPart>{{&sequence_, first, count}}, inputs.cached);
    return inputs;
  }

  Tensor logits(const generate::BatchInputs& inputs) { return (*forward_)(inputs).logits; }

 private:
  std::shared_ptr<generate::PackagedForward> forward_;
  generate::PagedCache cache_;
  generate::CachedSequence sequence_;
};

std::vector<float> values(const Tensor& logits) {
  return {logits.data<float>(), logits.data<float>() + logits.numel()};
}

}  // namespace

int32_t benchmark_token(int64_t position, int64_t vocab_size) {
  return static_cast<int32_t>((7 * position + 3) % vocab_size);
}

std::vector<PackagedModelRow> run_packaged_model_bench(const std::string& folder, const std::string& only, int threads,
                                                       double total_ms) {
  RankContext::current().set_threads(threads);
  const std::unique_ptr<models::Decoder> description = description_in(folder);
  PackagedText text(folder, *description);
  text.logits(text.inputs(0, kWriteKeys));
  std::vector<PackagedModelRow> rows;
  std::vector<generate::BatchInputs> inputs;
  std::vector<Tensor> last;
  for (const Call& call : kCalls) {
    if (!only.empty() && only != call.name) continue;
    rows.push_back({.call = call.name, .tokens = call.tokens, .keys = call.keys});
    inputs.push_back(text.inputs(call.keys, call.tokens));
    last.push_back(text.logits(inputs.back()));
    rows.back().logits = values(last.back());
  }
  std::vector<std::function<void()>> ways;
  for (size_t i = 0; i < rows.size(); ++i) ways.emplace_back([&, i] { last[i] = text.logits(inputs[i]); });
  const std::vector<Timing> times = measure_in_turns(ways, total_ms);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].time = times[i];
    rows[i].same_bits =
        std::memcmp(last[i].raw_data(), rows[i].logits.data(), rows[i].logits.size() * sizeof(float)) == 0;
  }
  return rows;
}

PackageOpening open_packaged_model_once(const std::string& folder, const std::string& call, int threads) {
  RankContext::current().set_threads(threads);
  const std::unique_ptr<models::Decoder> description = description_in(folder);
  const Clock::time_point start = Clock::now();
  PackagedText text(folder, *description);
  PackageOpening opening{.open_ms = ms_since(start)};
  text.logits(text.inputs(0, call == "write" ? 1 : kReadTokens));
  opening.first_ms = ms_since(start);
  add_pages(package_in(folder), opening);
  return opening;
}

}  // namespace tutti::bench
