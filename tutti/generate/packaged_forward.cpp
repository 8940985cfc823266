#include "tutti/generate/packaged_forward.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/deploy/package.h"
#include "tutti/nn/module.h"
#include "tutti/nn/packed_operand.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/package/package.h"

namespace tutti::generate {
namespace {

constexpr const char* kName = "decode";
constexpr int64_t kBatchTokens = 512;  // of a step of the engine; windows hold as many more keys

constexpr int64_t kTableKeys = 8 * kPageKeys;

PagedCacheOptions options_of_cache(DType dtype, int64_t context, int64_t texts) {
  return {.dtype = dtype,
          .bytes = std::numeric_limits<int64_t>::max(),
          .context = context,
          .sequences = texts,
          .batch_tokens = std::min(kBatchTokens, context)};
}

// The arguments of the packaged function, in this order: [texts, tokens] each, but for the rows [texts] of those whose
// logits are asked for; then, by group of layers, slots [texts, tokens], table [texts, pages] and last keys [texts,
// tokens].
enum Argument : size_t { kTokens, kPositions, kFirstKeys, kRows, kGroups };
constexpr size_t kOfGroup = 3;

BatchInputs inputs_of(const std::vector<Tensor>& arguments) {
  const auto flat = [](const Tensor& t) { return reshape(t, {t.numel()}); };
  BatchInputs inputs{
      flat(arguments[kTokens]), flat(arguments[kPositions]), flat(arguments[kFirstKeys]), arguments[kRows], {}, {}};
  for (size_t i = kGroups; i < arguments.size(); i += kOfGroup)
    inputs.cached.groups.push_back({flat(arguments[i]), {{arguments[i + 1], arguments[i + 2]}}});
  return inputs;
}

// Legal for all sizes, which take the first elements of these: a position is within the first pages of a table, which
// all rows of all tables have, and no two tokens have one slot.
std::vector<Tensor> example(size_t groups, int64_t vocab, const PackagedForwardOptions& options, int64_t pages) {
  std::vector<int32_t> ids, positions, table;
  std::vector<int64_t> slots;
  for (int64_t i = 0; i < options.texts * options.most_tokens; ++i) {
    ids.push_back(static_cast<int32_t>((7 * i + 3) % vocab));
    positions.push_back(static_cast<int32_t>(i % options.most_tokens));
    slots.push_back(i < kTableKeys ? i : -1);
  }
  for (int64_t i = 0; i < options.texts * pages; ++i)
    table.push_back(i % 8 * kPageKeys < options.most_tokens ? static_cast<int32_t>(i % 8) : -1);
  const Extents all{options.texts, options.most_tokens};
  const std::vector<int32_t> zeros(ids.size(), 0);
  std::vector<Tensor> arguments{Tensor::of(ids, all), Tensor::of(positions, all), Tensor::of(zeros, all),
                                Tensor::of(std::vector<int32_t>(static_cast<size_t>(options.texts), 0))};
  for (size_t g = 0; g < groups; ++g) {
    arguments.push_back(Tensor::of(slots, all));
    arguments.push_back(Tensor::of(table, {options.texts, pages}));
    arguments.push_back(Tensor::of(positions, all));
  }
  return arguments;
}

// The sizes of the first result, where all sizes are the least.
Extents result_of(const deploy::Package& package) {
  const deploy::Manifest& manifest = package.manifest();
  std::vector<Extents> sizes;
  for (const deploy::PackageArgument& input : manifest.inputs)
    sizes.push_back(manifest.extents_of(input, manifest.sizes_of(0)));
  return package.output_extents(sizes).at(0);
}

// Whether a package takes and gives what package_forward() has written.
bool is_forward(const deploy::Package& package) {
  const deploy::Manifest& m = package.manifest();
  const char* names[] = {"tokens", "texts", "pages"};
  bool fits = m.function == kName && m.sizes.size() == std::size(names) && !m.state.empty() && m.outputs.size() == 1 &&
              m.inputs.size() > kGroups && (m.inputs.size() - kGroups) % kOfGroup == 0;
  for (size_t i = 0; fits && i < std::size(names); ++i)
    fits = m.sizes[i].name == names[i] && m.sizes[i].least == (i == 2 ? 8 : 1);
  for (size_t i = 0; fits && i < m.inputs.size(); ++i) {
    const bool are_slots = i >= kGroups && (i - kGroups) % kOfGroup == 0;
    fits =
        m.inputs[i].dtype == (are_slots ? DType::i64 : DType::i32) && m.inputs[i].dims.size() == (i == kRows ? 1 : 2);
  }
  return fits && m.outputs[0] == DType::f32 && result_of(package).size() == 2;
}

// Rows [count, ...] of a tensor, the last of which is there several times.
Tensor repeat_last(const Tensor& t, int64_t count) {
  const int64_t given = t.extent(0);
  if (given == count) return t;
  std::vector<Tensor> rows{t};
  rows.resize(static_cast<size_t>(1 + count - given), slice(t, 0, given - 1, given));
  return cat(rows, 0);
}

}  // namespace

int64_t packaged_context(int64_t context) { return (context + kTableKeys - 1) / kTableKeys * kTableKeys; }

PackageReport package_forward(models::LanguageModel& model, const std::string& path,
                              const PackagedForwardOptions& options) {
  TUTTI_CHECK(options.context > 0 && options.most_tokens > 0 && options.step > 0 && options.most_tokens <= kTableKeys,
              "package: a context of {} tokens and parts of up to {} in steps of {}; expected positive numbers, and "
              "parts of at most {}",
              options.context, options.most_tokens, options.step, kTableKeys);
  TUTTI_CHECK(options.texts > 0 && options.texts <= kTableKeys, "package: {} texts at once; expected 1 to {}",
              options.texts, kTableKeys);
  const NoGradScope no_grad;
  const nn::EvalScope evaluating(model);
  const nn::PackedLinears packed(model);
  const int64_t context = packaged_context(options.context), tables = context / kTableKeys;
  const DType dtype = options.cache_dtype.value_or(model.named_parameters().front().parameter.use_dtype());
  PagedCache cache(model.config(), options_of_cache(dtype, context, options.texts));
  BatchForward forward(model, cache, options.forward, false);
  const std::vector<Tensor> arguments = example(cache.groups(), model.vocab_size(), options, 8 * tables);
  forward(inputs_of(arguments));  // makes the memory of the cache
  PackageOptions package_options{.name = kName};
  if (!options.levels.empty()) package_options.levels = options.levels;
  for (const PagedCache::NamedMemory& memory : cache.memory()) {
    std::memset(memory.tensor.raw_data(), 0, static_cast<size_t>(memory.tensor.nbytes()));
    package_options.state.push_back({memory.name, memory.tensor});
  }
  PackagedSize tokens{.name = "tokens", .least = 1, .most = options.most_tokens, .step = options.step},
      texts{.name = "texts",
            .least = 1,
            .most = options.texts,
            .step = std::max<int64_t>(options.texts - 1, 1),
            .apart_from = "tokens"},
      pages{.name = "pages", .least = 8, .most = 8 * tables, .step = 8};
  for (int i = 0; i < static_cast<int>(arguments.size()); ++i) {
    const bool is_table = i >= static_cast<int>(kGroups) && (i - static_cast<int>(kGroups)) % kOfGroup == 1;
    texts.dims.push_back({i, 0});
    if (i != kRows) (is_table ? pages : tokens).dims.push_back({i, 1});
  }
  package_options.dynamic = {tokens, texts, pages};
  return package(
      path, [&](const std::vector<Tensor>& given) { return forward(inputs_of(given)).logits; }, package_options,
      arguments);
}

std::shared_ptr<PackagedForward> PackagedForward::open(const std::string& path) {
  std::shared_ptr<PackagedForward> forward(new PackagedForward);
  forward->package_ = deploy::Package::open(path);
  const deploy::Manifest& manifest = forward->package_->manifest();
  TUTTI_CHECK(is_forward(*forward->package_),
              "the package {} holds '{}', which is no forward of a model; tutti package MODEL TARGET writes one", path,
              manifest.function);
  forward->state_ = forward->package_->new_state();
  forward->most_tokens_ = manifest.sizes[0].most, forward->step_ = manifest.sizes[0].step;
  forward->texts_ = manifest.sizes[1].most;
  forward->context_ = manifest.sizes[2].most * kPageKeys;
  forward->cache_dtype_ = manifest.state[0].dtype;
  forward->vocab_ = result_of(*forward->package_).back();
  return forward;
}

PagedCacheOptions PackagedForward::cache_options() const { return options_of_cache(cache_dtype_, context_, texts_); }

std::vector<PackagedForward::Part> PackagedForward::parts_of(const BatchInputs& inputs) const {
  std::vector<Part> parts;
  int64_t first = 0;
  const std::vector<PagedBatch::Call>& calls = inputs.cached.groups.front().calls;
  for (size_t c = 0; c < calls.size(); ++c) {
    const int64_t texts = calls[c].last_key.extent(0), tokens = calls[c].last_key.extent(1);
    for (int64_t text = 0; tokens == 1 && text < texts;) {
      const int64_t count = std::min(texts - text, texts_);
      parts.push_back({c, text, count, 0, first, first + count});
      text += count, first += count;
    }
    for (int64_t text = 0; tokens > 1 && text < texts; ++text) {
      for (int64_t at = 0; at < tokens;) {
        const int64_t count = 1 + (std::min(tokens - at, most_tokens_) - 1) / step_ * step_;
        parts.push_back({c, text, 1, at, first, first + count});
        at += count, first += count;
      }
    }
  }
  return parts;
}

Tensor PackagedForward::run(const BatchInputs& inputs, const Part& part, const std::vector<int32_t>& rows) {
  const int64_t tokens = (part.end - part.first) / part.texts;
  // The package takes one text or all; what is missing are copies of the last one, without slots.
  const int64_t texts = part.texts == 1 ? 1 : texts_;
  const auto of_batch = [&](const Tensor& t) {
    return repeat_last(reshape(slice(t, 0, part.first, part.end), {part.texts, tokens}), texts);
  };
  const auto of_call = [&](const Tensor& t) {
    return repeat_last(slice(t, 0, part.text, part.text + part.texts), texts);
  };
  const int64_t wanted = std::ssize(rows);
  std::vector<int32_t> row_of(static_cast<size_t>(texts), 0);
  for (size_t i = 0; i < rows.size(); ++i) row_of[i] = rows[i] - static_cast<int32_t>(part.first);
  std::vector<Tensor> arguments{of_batch(inputs.tokens), of_batch(inputs.positions), of_batch(inputs.first_keys),
                                Tensor::of(row_of)};
  for (const PagedBatch::Group& group : inputs.cached.groups) {
    const PagedBatch::Call& call = group.calls[part.call];
    Tensor slots = to_contiguous(of_batch(group.slots));
    if (texts > part.texts) std::fill_n(slots.data<int64_t>() + part.texts, texts - part.texts, int64_t{-1});
    arguments.push_back(slots);
    arguments.push_back(of_call(call.table));
    arguments.push_back(slice(of_call(call.last_key), 1, part.of_text, part.of_text + tokens));
  }
  ++calls_;
  return slice(package_->run(*state_, arguments)[0], 0, 0, wanted);
}

BatchOutputs PackagedForward::operator()(const BatchInputs& inputs) {
  TUTTI_CHECK(!inputs.labels.defined(), "a packaged model gives no log-probabilities of prompts");
  const std::span<const int32_t> rows =
      inputs.rows.defined() ? std::span(inputs.rows.data<int32_t>(), static_cast<size_t>(inputs.rows.numel()))
                            : std::span<const int32_t>();
  std::vector<Tensor> logits;
  for (const Part& part : parts_of(inputs)) {
    std::vector<int32_t> wanted;
    for (const int32_t row : rows)
      if (row >= part.first && row < part.end) wanted.push_back(row);
    const Tensor of_part = run(inputs, part, wanted);
    if (!wanted.empty()) logits.push_back(of_part);
  }
  if (logits.empty()) return {};
  return {.logits = logits.size() == 1 ? logits[0] : cat(logits, 0)};
}

}  // namespace tutti::generate
