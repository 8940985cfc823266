#include "tutti/generate/paged_cache.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/inplace.h"
#include "tutti/ops/paged_attention.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/write_pages.h"

namespace tutti::generate {
namespace {

bool holds_codes(DType dtype) { return dtype == DType::i8 || dtype == DType::f8e4m3fn; }

int64_t pages_for(int64_t keys) { return (keys + kPageKeys - 1) / kPageKeys; }
// Tables grow by eight pages, so that a compiled forward seldom meets a size that is new to it.
int64_t table_width(int64_t keys) { return (pages_for(keys) + 7) / 8 * 8; }

// The bytes of a page in all layers of a window that have keys of their own.
struct PageSize {
  int64_t window, bytes;
  int64_t most;  // so many pages are ever held
};

std::vector<PageSize> page_sizes(const models::DecoderConfig& config, const PagedCacheOptions& options) {
  std::vector<PageSize> sizes;
  for (const models::LayerConfig& layer : config.layers) {
    const models::AttentionConfig& a = layer.attention;
    if (a.shared_layer) continue;
    auto size = std::find_if(sizes.begin(), sizes.end(), [&](const PageSize& s) { return s.window == a.window; });
    if (size == sizes.end()) {
      // A batch holds the window before its tokens, and the tokens; both may begin within a page.
      const int64_t whole = options.sequences * pages_for(options.context);
      const int64_t windows = options.sequences * (pages_for(a.window) + 2) + pages_for(options.batch_tokens);
      size = sizes.insert(sizes.end(), {a.window, 0, a.window > 0 ? std::min(whole, windows) : whole});
    }
    const int64_t heads = std::max<int64_t>(a.kv_heads / options.ranks, 1);
    size->bytes += kPageKeys * position_bytes(heads, a.head_dim, options.dtype);
  }
  return sizes;
}

// How many pages each kind gets: equally many, but none more than are ever held.
std::vector<int64_t> page_counts(const std::vector<PageSize>& sizes, int64_t bytes) {
  std::vector<int64_t> counts(sizes.size(), -1);
  for (;;) {
    int64_t open = 0;
    for (size_t i = 0; i < sizes.size(); ++i) open += counts[i] < 0 ? sizes[i].bytes : 0;
    if (open == 0) return counts;
    const int64_t each = bytes / open;
    bool is_bounded = false;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (counts[i] >= 0 || sizes[i].most > each) continue;
      counts[i] = sizes[i].most;
      bytes -= counts[i] * sizes[i].bytes;
      is_bounded = true;
    }
    if (is_bounded) continue;
    for (int64_t& count : counts) {
      if (count < 0) count = std::min<int64_t>(each, INT32_MAX / kPageKeys);
    }
  }
}

Tensor ints(const std::vector<int32_t>& values, Extents sizes) { return Tensor::of(values, std::move(sizes)); }

}  // namespace

int64_t position_bytes(const models::DecoderConfig& config, DType dtype) {
  int64_t bytes = 0;
  for (const models::LayerConfig& layer : config.layers)
    if (const models::AttentionConfig& a = layer.attention; !a.shared_layer)
      bytes += position_bytes(a.kv_heads, a.head_dim, dtype);
  return bytes;
}

int64_t most_bytes(const models::DecoderConfig& config, const PagedCacheOptions& options) {
  int64_t bytes = 0;
  for (const PageSize& size : page_sizes(config, options)) bytes += size.most * size.bytes;
  return bytes;
}

int64_t position_bytes(int64_t kv_heads, int64_t head_dim, DType dtype) {
  return 2 * kv_heads * (head_dim * itemsize(dtype) + (holds_codes(dtype) ? itemsize(DType::f32) : 0));
}

PagedCache::PagedCache(const models::DecoderConfig& config, const PagedCacheOptions& options)
    : layers_(config.layers.size()), dtype_(options.dtype) {
  TUTTI_CHECK(holds_codes(dtype_) || (is_floating(dtype_) && !is_fp8(dtype_)),
              "a cache of {}; expected i8 or f8e4m3fn, or the dtype in which the model computes", name_of(dtype_));
  make_groups(config, options);
  table_.reserve(static_cast<size_t>(options.sequences * table_width(options.context)));
}

void PagedCache::make_groups(const models::DecoderConfig& config, const PagedCacheOptions& options) {
  const std::vector<PageSize> sizes = page_sizes(config, options);
  const std::vector<int64_t> counts = page_counts(sizes, options.bytes);
  for (size_t g = 0; g < sizes.size(); ++g) {
    TUTTI_CHECK(counts[g] > 0, "a cache of {} bytes holds no page of {}: a page of {} keys takes {} bytes; allow more",
                options.bytes, config.name(), kPageKeys, sizes[g].bytes);
    bytes_ += counts[g] * sizes[g].bytes;
    groups_.push_back({sizes[g].window, PagePool(counts[g], [this](uint64_t prefix) { forget(prefix); })});
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    const int64_t window = config.layers[i].attention.window;
    const auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) { return g.window == window; });
    layers_[i].group = static_cast<size_t>(group - groups_.begin());
  }
}

// A page of this prefix was taken for something else.
void PagedCache::forget(uint64_t prefix) {
  const bool is_known =
      std::any_of(groups_.begin(), groups_.end(), [&](const Group& g) { return g.pool.published(prefix).has_value(); });
  if (!is_known) index_.remove(prefix);
}

int64_t PagedCache::first_page(const Group& group, int64_t position) {
  return group.window == 0 ? 0 : std::max<int64_t>(position - group.window + 1, 0) / kPageKeys;
}

int64_t PagedCache::longest() const {
  int64_t pages = INT32_MAX / kPageKeys;
  for (const Group& group : groups_) {
    if (group.window == 0) pages = std::min(pages, group.pool.pages());
  }
  return pages * kPageKeys;
}

int64_t PagedCache::reuse(CachedSequence& sequence, std::span<const int32_t> tokens) {
  TUTTI_ASSERT(sequence.length == 0, "the sequence has begun already");
  std::vector<uint64_t> found;
  uint64_t prefix = PrefixIndex::kEmpty;
  const auto is_whole = [&](const Group& group) { return group.window > 0 || group.pool.published(prefix); };
  while (std::ssize(found) + 1 <= (std::ssize(tokens) - 1) / kPageKeys) {
    const auto next = index_.find(prefix, tokens.subspan(found.size() * kPageKeys, kPageKeys));
    if (!next) break;
    prefix = *next;
    if (!std::all_of(groups_.begin(), groups_.end(), is_whole)) break;
    found.push_back(prefix);
  }
  // Layers with a window need the pages that the next query sees.
  const auto has_windows = [&] {
    return std::all_of(groups_.begin(), groups_.end(), [&](const Group& group) {
      for (int64_t page = first_page(group, std::ssize(found) * kPageKeys); page < std::ssize(found); ++page)
        if (!group.pool.published(found[static_cast<size_t>(page)])) return false;
      return true;
    });
  };
  while (!found.empty() && !has_windows()) found.pop_back();

  sequence.tables.assign(groups_.size(), {});
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const int64_t first = first_page(group, std::ssize(found) * kPageKeys);
    for (int64_t page = 0; page < std::ssize(found); ++page) {
      const int32_t held = page < first ? -1 : *group.pool.published(found[static_cast<size_t>(page)]);
      if (held >= 0) group.pool.hold(held);
      sequence.tables[g].push_back(held);
    }
  }
  sequence.length = std::ssize(found) * kPageKeys;
  sequence.prefixes = std::move(found);
  return sequence.length;
}

bool PagedCache::reserve(CachedSequence& sequence, int64_t length) {
  if (sequence.tables.empty()) sequence.tables.resize(groups_.size());
  const int64_t pages = pages_for(length);
  for (size_t g = 0; g < groups_.size(); ++g)
    if (pages - std::ssize(sequence.tables[g]) > groups_[g].pool.available()) return false;
  for (size_t g = 0; g < groups_.size(); ++g)
    while (std::ssize(sequence.tables[g]) < pages) sequence.tables[g].push_back(*groups_[g].pool.take());
  return true;
}

void PagedCache::advance(CachedSequence& sequence, std::span<const int32_t> tokens, int64_t length) {
  sequence.length = length;
  for (int64_t page = std::ssize(sequence.prefixes); page < length / kPageKeys; ++page) {
    const uint64_t before = page == 0 ? PrefixIndex::kEmpty : sequence.prefixes.back();
    const uint64_t prefix = index_.add(before, tokens.subspan(static_cast<size_t>(page * kPageKeys), kPageKeys));
    sequence.prefixes.push_back(prefix);
    for (size_t g = 0; g < groups_.size(); ++g) {
      const int32_t held = sequence.tables[g][static_cast<size_t>(page)];
      if (held >= 0) groups_[g].pool.publish(held, prefix);
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int64_t first = std::min(first_page(groups_[g], length), std::ssize(sequence.tables[g]));
    for (int64_t page = 0; page < first; ++page) {
      int32_t& held = sequence.tables[g][static_cast<size_t>(page)];
      if (held >= 0) groups_[g].pool.release(held);
      held = -1;
    }
  }
}

// Last pages first: they are the first to be taken, since a prefix is of no use without its beginning.
void PagedCache::release(CachedSequence& sequence) {
  for (size_t g = 0; g < sequence.tables.size(); ++g) {
    std::vector<int32_t>& table = sequence.tables[g];
    for (; !table.empty(); table.pop_back())
      if (table.back() >= 0) groups_[g].pool.release(table.back());
  }
  sequence = {};
}

// Sequences with one token each are one call; parts of several tokens are calls of their own.
void PagedCache::describe(std::span<const BatchPart> parts, PagedBatch& batch) {
  batch.groups.resize(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    PagedBatch::Group& group = batch.groups[g];
    group.calls.clear();
    slots_.clear();
    for (size_t i = 0; i < parts.size();) {
      size_t end = i + 1;
      while (parts[i].count == 1 && end < parts.size() && parts[end].count == 1) ++end;
      const int64_t sequences = static_cast<int64_t>(end - i), each = parts[i].count;
      int64_t widest = 0;
      for (size_t k = i; k < end; ++k) widest = std::max(widest, table_width(parts[k].first + each));
      table_.clear();
      last_key_.clear();
      for (; i < end; ++i) {
        const std::vector<int32_t>& pages = parts[i].sequence->tables[g];
        for (int64_t page = 0; page < widest; ++page)
          table_.push_back(page < std::ssize(pages) ? pages[static_cast<size_t>(page)] : -1);
        for (int64_t at = parts[i].first; at < parts[i].first + each; ++at) {
          slots_.push_back(pages[static_cast<size_t>(at / kPageKeys)] * kPageKeys + at % kPageKeys);
          last_key_.push_back(static_cast<int32_t>(at));
        }
      }
      group.calls.push_back({ints(table_, {sequences, widest}), ints(last_key_, {sequences, each})});
    }
    group.slots = Tensor::of(slots_, {std::ssize(slots_)});
  }
}

int64_t PagedCache::pages() const {
  int64_t sum = 0;
  for (const Group& group : groups_) sum += group.pool.pages();
  return sum;
}
int64_t PagedCache::available() const {
  int64_t sum = 0;
  for (const Group& group : groups_) sum += group.pool.available();
  return sum;
}

// For heads that this rank holds, as `keys` has them.
void PagedCache::make_memory(Layer& layer, const Tensor& keys) const {
  const int64_t pages = groups_[layer.group].pool.pages(), heads = keys.extent(1), head_dim = keys.extent(2);
  const DType dtype = holds_codes(dtype_) ? dtype_ : keys.dtype();
  for (Tensor* numbers : {&layer.keys, &layer.values})
    *numbers = Tensor::empty({pages, heads, kPageKeys, head_dim}, dtype);
  if (!holds_codes(dtype_)) return;
  for (Tensor* scales : {&layer.key_scales, &layer.value_scales})
    *scales = Tensor::empty({pages, heads, kPageKeys}, DType::f32);
}

std::vector<PagedCache::NamedMemory> PagedCache::memory() const {
  std::vector<NamedMemory> memory;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    const auto add = [&](const char* what, const Tensor& tensor) {
      if (tensor.defined()) memory.push_back({fmt::format("layer.{}.{}", i, what), tensor});
    };
    add("keys", layer.keys), add("values", layer.values);
    add("keys.scales", layer.key_scales), add("values.scales", layer.value_scales);
  }
  return memory;
}

void PagedCache::poison(double value) {
  for (Layer& layer : layers_) {
    const PagePool& pool = groups_[layer.group].pool;
    for (int32_t page = 0; layer.keys.defined() && page < pool.pages(); ++page) {
      if (pool.is_held(page) || pool.is_published(page)) continue;
      const bool codes = layer.key_scales.defined();
      fill_(narrow(codes ? layer.key_scales : layer.keys, 0, page, 1), value);
      fill_(narrow(codes ? layer.value_scales : layer.values, 0, page, 1), value);
    }
  }
}

Tensor PagedAttention::attend(int64_t layer, const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE,
                              const SdpaOptions& options) {
  if (!dist::is_dtensor(q_THE)) return attend_here(layer, q_THE, k_TKE, v_TKE, options);
  // Each rank keeps the keys of its own heads.
  const auto beside = [&](const Tensor& t) {
    return !t.defined() ? t : dist::to_local(dist::redistribute(t, dist::placements_of(q_THE)));
  };
  const Tensor here = attend_here(layer, dist::to_local(q_THE), beside(k_TKE), beside(v_TKE), options);
  dist::FromLocalOptions options_of_whole;
  // Sizes are integers, and fix the number of tokens of a compiled forward: only ranks with unequal parts need them.
  if (q_THE.extent(1) % dist::mesh_of(q_THE)->size() != 0) options_of_whole.sizes = q_THE.extents();
  return dist::from_local(here, dist::mesh_of(q_THE), dist::placements_of(q_THE), options_of_whole);
}

Tensor PagedAttention::attend_here(int64_t layer, const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE,
                                   const SdpaOptions& options) {
  PagedCache::Layer& memory = cache_.layers_[static_cast<size_t>(layer)];
  const PagedBatch::Group& batch = batch_.groups[memory.group];
  const int64_t heads = q_THE.extent(1), head_dim = q_THE.extent(2);
  TUTTI_ASSERT(k_TKE.defined() || memory.keys.defined(), "the layer's keys are read before they are written");
  if (!memory.keys.defined()) cache_.make_memory(memory, k_TKE);
  if (k_TKE.defined()) {
    const auto write = [&](const Tensor& pages, const Tensor& scales, const Tensor& rows) {
      if (scales.defined()) write_page_codes_(pages, scales, rows, batch.slots);
      else write_pages_(pages, rows, batch.slots);
    };
    write(memory.keys, memory.key_scales, k_TKE);
    write(memory.values, memory.value_scales, v_TKE);
  }
  const auto attend_to = [&](const PagedBatch::Call& call, const Tensor& q) {
    const SymInt sequences = call.last_key.size(0), each = call.last_key.size(1);
    const Tensor attended =
        sdpa_paged(reshape(q, {sequences, each, heads, head_dim}),
                   {memory.keys, memory.values, call.table, memory.key_scales, memory.value_scales}, call.last_key,
                   {.scale = options.scale, .window = options.window, .score_cap = options.score_cap});
    return reshape(attended, {sequences * each, heads, head_dim});
  };
  if (batch.calls.size() == 1) return attend_to(batch.calls[0], q_THE);
  std::vector<Tensor> rows;
  SymInt first = 0;
  for (const PagedBatch::Call& call : batch.calls) {
    const SymInt count = call.last_key.size(0) * call.last_key.size(1);
    rows.push_back(attend_to(call, narrow(q_THE, 0, first, count)));
    first = first + count;
  }
  return cat(rows, 0);
}

}  // namespace tutti::generate
