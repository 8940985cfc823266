// PagedCache: keys and values of many sequences in pages of bounded memory.
//
// A page holds the keys and values of kPageKeys positions, at absolute positions, in all layers that see equally many
// keys. Sequences with equal beginnings share pages. Pages whose keys lie before the window of their layers are given
// back. Attention has the bits of sdpa over a whole sequence, for any cut of it into batches (numerics contract, N10).
// Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/generate/page_pool.h"
#include "tutti/generate/prefix_index.h"
#include "tutti/models/attention_cache.h"
#include "tutti/models/decoder_config.h"

namespace tutti::generate {

inline constexpr int64_t kPageKeys = 16;

struct PagedCacheOptions {
  // Keys and values have the dtype in which the model computes, or are codes, i8 or f8e4m3fn, with a scale for each key
  // of a head (write_pages.h). Codes change what attention gives, to the same bits in any cut and layout.
  DType dtype = DType::f32;
  int64_t bytes = int64_t{1} << 30;  // the memory of all pages, at most
  int64_t context = 0;               // positions of a sequence
  int64_t sequences = 1;             // how many are in a batch at most
  int64_t batch_tokens = 1;          // tokens of a batch at most
  int64_t ranks = 1;                 // that divide the heads
};

// The pages of one sequence.
struct CachedSequence {
  int64_t length = 0;                        // positions whose keys are in the cache
  std::vector<std::vector<int32_t>> tables;  // by group of layers: the page of each kPageKeys positions; -1: none
  std::vector<uint64_t> prefixes;            // of the whole pages that are known to the index
};

// Consecutive tokens of a sequence in a batch.
struct BatchPart {
  const CachedSequence* sequence;
  int64_t first, count;  // positions
};

// What attention needs to know of the tokens of a batch, by group of layers.
struct PagedBatch {
  // Tokens that follow one another in the batch: S of each of B sequences.
  struct Call {
    Tensor table;     // i32 [B, W]: the pages of the sequences; -1: none
    Tensor last_key;  // i32 [B, S]: the position of each token
  };
  struct Group {
    Tensor slots;             // i64 [T]: where the keys of each token go
    std::vector<Call> calls;  // in the order of the batch
  };
  std::vector<Group> groups;
};

// The bytes of the keys and values of one position in a layer of so many heads, scales of codes with them.
int64_t position_bytes(int64_t kv_heads, int64_t head_dim, DType dtype);
// The same of all layers that have keys of their own.
int64_t position_bytes(const models::DecoderConfig& config, DType dtype);
// The bytes of the pages that such a cache ever holds, whatever `options.bytes` allows: a layer with a window holds no
// more pages than the window needs.
int64_t most_bytes(const models::DecoderConfig& config, const PagedCacheOptions& options);

class PagedCache {
 public:
  // UsageError when not even one sequence of a page fits, naming the bytes of a page, and for another dtype.
  PagedCache(const models::DecoderConfig& config, const PagedCacheOptions& options);

  // The positions of the longest sequence that fits alone.
  int64_t longest() const;
  // Begins a sequence with the pages of others that begin with the same tokens; returns how many of `tokens` they hold,
  // which is less than all.
  int64_t reuse(CachedSequence& sequence, std::span<const int32_t> tokens);
  // Makes room for `length` positions; false, and nothing has changed, when there are not enough pages.
  bool reserve(CachedSequence& sequence, int64_t length);
  // Says that the keys of positions up to `length` of `tokens` have been written: whole pages can be shared from now
  // on, and pages before windows are given back.
  void advance(CachedSequence& sequence, std::span<const int32_t> tokens, int64_t length);
  void release(CachedSequence& sequence);

  // Describes the tokens of the next forward, whose positions must have been reserved, to PagedAttention.
  void describe(std::span<const BatchPart> parts, PagedBatch& batch);

  // Groups of layers that see equally many keys.
  size_t groups() const { return groups_.size(); }
  // The memory that layers have after a first forward: "layer.0.keys", "layer.0.values", of codes also ".scales".
  struct NamedMemory {
    std::string name;
    Tensor tensor;
  };
  std::vector<NamedMemory> memory() const;

  int64_t bytes() const { return bytes_; }
  // Pages of all groups, and those of them that no sequence holds.
  int64_t pages() const;
  int64_t available() const;
  // Fills the pages that no sequence holds and that are not shared, or their scales, for tests: attention must not read
  // them.
  void poison(double value);

 private:
  friend class PagedAttention;
  struct Group {
    int64_t window = 0;  // keys that are seen, with the own one; 0: all
    PagePool pool;
  };
  // The memory of a layer, made when it is first needed, since the part of a rank is then known.
  struct Layer {
    size_t group = 0;
    Tensor keys = {}, values = {}, key_scales = {}, value_scales = {};
  };

  void make_groups(const models::DecoderConfig& config, const PagedCacheOptions& options);
  void make_memory(Layer& layer, const Tensor& keys) const;
  void forget(uint64_t prefix);
  // The number of the first page that a query at this position reads.
  static int64_t first_page(const Group& group, int64_t position);

  std::vector<Layer> layers_;
  std::vector<Group> groups_;
  std::vector<int64_t> slots_;  // memory of describe()
  std::vector<int32_t> table_, last_key_;
  PrefixIndex index_;
  const DType dtype_;
  int64_t bytes_ = 0;
};

// Attention of the tokens of a batch over the keys in a cache, both of which must outlive it.
class PagedAttention final : public models::AttentionCache {
 public:
  PagedAttention(PagedCache& cache, const PagedBatch& batch) : cache_(cache), batch_(batch) {}
  Tensor attend(int64_t layer, const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE,
                const SdpaOptions& options) override;

 private:
  Tensor attend_here(int64_t layer, const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE,
                     const SdpaOptions& options);

  PagedCache& cache_;
  const PagedBatch& batch_;
};

}  // namespace tutti::generate
