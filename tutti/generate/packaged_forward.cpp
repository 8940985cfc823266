#include "tutti/generate/packaged_forward.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/deploy/package.h"
#include "tutti/nn/module.h"
#include "tutti/ops/slice.h"
#include "tutti/package/package.h"

namespace tutti::generate {
namespace {

constexpr const char* kName = "decode";
constexpr int64_t kBatchTokens = 512;  // of a step of the engine; windows hold as many more keys

PagedCacheOptions options_of_cache(DType dtype, int64_t context) {
  return {.dtype = dtype,
          .bytes = std::numeric_limits<int64_t>::max(),
          .context = context,
          .batch_tokens = std::min(kBatchTokens, context)};
}

// The arguments of the packaged function, in this order; then, by group of layers, slots, table and last keys.
enum Argument : size_t { kTokens, kPositions, kFirstKeys, kRows, kGroups };
constexpr size_t kOfGroup = 3;

BatchInputs inputs_of(const std::vector<Tensor>& arguments) {
  BatchInputs inputs{arguments[kTokens], arguments[kPositions], arguments[kFirstKeys], arguments[kRows], {}, {}};
  for (size_t i = kGroups; i < arguments.size(); i += kOfGroup)
    inputs.cached.groups.push_back({arguments[i], {{arguments[i + 1], arguments[i + 2]}}});
  return inputs;
}

// The first tokens of a text, in the first pages of the cache. With fewer tokens and shorter tables, these are the
// first of them.
std::vector<Tensor> example(size_t groups, int64_t vocab, int64_t tokens, int64_t pages) {
  std::vector<int32_t> ids, positions, table;
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < tokens; ++i) {
    ids.push_back(static_cast<int32_t>((7 * i + 3) % vocab));
    positions.push_back(static_cast<int32_t>(i));
    slots.push_back(i);
  }
  // Layers with windows have fewer pages than the table has places.
  for (int64_t page = 0; page < pages; ++page)
    table.push_back(page * kPageKeys < tokens ? static_cast<int32_t>(page) : -1);
  std::vector<Tensor> arguments{Tensor::of(ids), Tensor::of(positions), Tensor::of(std::vector<int32_t>(ids.size(), 0)),
                                Tensor::of<int32_t>({0})};
  for (size_t g = 0; g < groups; ++g) {
    arguments.push_back(Tensor::of(slots));
    arguments.push_back(Tensor::of(table, {1, pages}));
    arguments.push_back(Tensor::of(positions, {1, tokens}));
  }
  return arguments;
}

}  // namespace

constexpr int64_t kTableKeys = 8 * kPageKeys;

int64_t packaged_context(int64_t context) { return (context + kTableKeys - 1) / kTableKeys * kTableKeys; }

PackageReport package_forward(models::LanguageModel& model, const std::string& path,
                              const PackagedForwardOptions& options) {
  TUTTI_CHECK(options.context > 0 && options.most_tokens > 0 && options.step > 0 && options.most_tokens <= kTableKeys,
              "package: a context of {} tokens and parts of up to {} in steps of {}; expected positive numbers, and "
              "parts of at most {}",
              options.context, options.most_tokens, options.step, kTableKeys);
  const NoGradScope no_grad;
  const nn::EvalScope evaluating(model);
  const int64_t context = packaged_context(options.context), tables = context / kTableKeys;
  const DType dtype = options.cache_dtype.value_or(model.named_parameters().front().parameter.use_dtype());
  PagedCache cache(model.config(), options_of_cache(dtype, context));
  BatchForward forward(model, cache, options.forward, false);
  const std::vector<Tensor> arguments = example(cache.groups(), model.vocab_size(), options.most_tokens, 8 * tables);
  forward(inputs_of(arguments));  // makes the memory of the cache
  PackageOptions package_options{.name = kName};
  if (!options.levels.empty()) package_options.levels = options.levels;
  for (const PagedCache::NamedMemory& memory : cache.memory()) {
    std::memset(memory.tensor.raw_data(), 0, static_cast<size_t>(memory.tensor.nbytes()));
    package_options.state.push_back({memory.name, memory.tensor});
  }
  PackagedSize tokens{.name = "tokens", .least = 1, .most = options.most_tokens, .step = options.step},
      pages{.name = "pages", .least = 8, .most = 8 * tables, .step = 8};
  for (const int i : {kTokens, kPositions, kFirstKeys}) tokens.dims.push_back({i, 0});
  for (size_t i = kGroups; i < arguments.size(); i += kOfGroup) {
    const int slots = static_cast<int>(i);
    tokens.dims.push_back({slots, 0}), tokens.dims.push_back({slots + 2, 1});
    pages.dims.push_back({slots + 1, 1});
  }
  package_options.dynamic = {tokens, pages};
  return package(
      path, [&](const std::vector<Tensor>& given) { return forward(inputs_of(given)).logits; }, package_options,
      arguments);
}

std::shared_ptr<PackagedForward> PackagedForward::open(const std::string& path) {
  std::shared_ptr<PackagedForward> forward(new PackagedForward);
  forward->package_ = deploy::Package::open(path);
  const deploy::Manifest& manifest = forward->package_->manifest();
  TUTTI_CHECK(manifest.function == kName && manifest.sizes.size() == 2 && manifest.sizes[0].name == "tokens" &&
                  manifest.sizes[1].name == "pages" && !manifest.state.empty(),
              "the package {} holds '{}', which is no forward of a model; tutti package MODEL TARGET writes one", path,
              manifest.function);
  forward->state_ = forward->package_->new_state();
  forward->most_tokens_ = manifest.sizes[0].most, forward->step_ = manifest.sizes[0].step;
  forward->context_ = manifest.sizes[1].most * kPageKeys;
  forward->cache_dtype_ = manifest.state[0].dtype;
  std::vector<Extents> sizes;
  for (const deploy::PackageArgument& input : manifest.inputs)
    sizes.push_back(manifest.extents_of(input, manifest.sizes_of(0)));
  forward->vocab_ = forward->package_->output_extents(sizes).at(0).back();
  return forward;
}

PagedCacheOptions PackagedForward::cache_options() const { return options_of_cache(cache_dtype_, context_); }

int64_t PackagedForward::part_of(int64_t tokens) const {
  return 1 + (std::min(tokens, most_tokens_) - 1) / step_ * step_;
}

BatchOutputs PackagedForward::operator()(const BatchInputs& inputs) {
  TUTTI_CHECK(!inputs.labels.defined(), "a packaged model gives no log-probabilities of prompts");
  for (const PagedBatch::Group& group : inputs.cached.groups)
    TUTTI_CHECK(group.calls.size() == 1 && group.calls[0].table.extent(0) == 1,
                "a packaged model writes one text at a time");
  const int64_t all = inputs.tokens.extent(0);
  Tensor logits;
  for (int64_t first = 0; first < all;) {
    const int64_t end = first + part_of(all - first);
    const auto part = [&](const Tensor& t, int dim) { return slice(t, dim, first, end); };
    const bool is_last = end == all && inputs.rows.defined();
    const int32_t row = is_last ? inputs.rows.data<int32_t>()[0] - static_cast<int32_t>(first) : 0;
    std::vector<Tensor> arguments{part(inputs.tokens, 0), part(inputs.positions, 0), part(inputs.first_keys, 0),
                                  Tensor::of<int32_t>({row})};
    for (const PagedBatch::Group& group : inputs.cached.groups) {
      arguments.push_back(part(group.slots, 0));
      arguments.push_back(group.calls[0].table);
      arguments.push_back(part(group.calls[0].last_key, 1));
    }
    logits = package_->run(*state_, arguments)[0];
    first = end;
  }
  return {.logits = inputs.rows.defined() ? logits : Tensor()};
}

}  // namespace tutti::generate
