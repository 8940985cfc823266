// RandomKey determines the random numbers of a draw. A draw is a pure function of its key (numerics contract, N6).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "tutti/core/shape.h"
#include "tutti/ops/engine/attrs.h"

namespace tutti {

// Element i of a draw takes word index % 4 of the Philox block index / 4, where index is the element's position in the
// whole tensor. A part of a tensor that is drawn on its own therefore has the bits of that part of the whole.
struct RandomKey {
  uint64_t key = 0;
  uint32_t step = 0;           // step of the training run
  uint32_t virtual_shard = 0;  // virtual shard of the global batch
  int64_t first_index = 0;     // position of element 0 in the whole tensor
  // For a part cut along an inner dim: its elements are runs of `run_length` in the whole tensor, `run_stride` apart.
  int64_t run_length = 0;  // 0: a single run
  int64_t run_stride = 0;
  int64_t stand_in = 0;  // of a trace: the number of the key that this one stands for in its calls; 0: none

  // The position in the whole tensor of element i of this part.
  int64_t index_of(int64_t i) const {
    return first_index + (run_length == 0 ? i : i / run_length * run_stride + i % run_length);
  }
  static constexpr auto fields() {
    return field_list(
        field::number<&RandomKey::key>("key"), field::number<&RandomKey::step>("step"),
        field::number<&RandomKey::virtual_shard>("virtual_shard"),
        field::number<&RandomKey::first_index>("first_index"), field::number<&RandomKey::run_length>("run_length"),
        field::number<&RandomKey::run_stride>("run_stride"), field::number<&RandomKey::stand_in>("stand_in"));
  }
};

// The key of call number `ordinal` inside the module `path`, under the rank's seed (seed_all). A parameter is
// initialized with its own name as path and ordinal 0.
RandomKey random_key(std::string_view path, uint64_t ordinal = 0, uint32_t step = 0, uint32_t virtual_shard = 0);

// The path of the module that runs on this thread; "" outside of ModuleScopes that are recorded.
std::string_view current_module_path();

// The next anonymous key of this rank. Anonymous keys depend on the rank's seed and on the order of calls.
RandomKey next_random_key();
// The same for a draw in the module `inside` of the module that runs, as if a ModuleScope had been opened; "" is that
// module itself. For calls that replay draws of modules whose code does not run again.
RandomKey next_random_key(std::string_view inside);
// Returns a function that takes the source of anonymous keys of this thread back to where it is now, so that the same
// keys come again. It must be called on this thread, while the same source is in place.
std::function<void()> mark_random_keys();

// A source of anonymous keys that replaces that of the rank on one thread, for example a trace, which defers drawing
// them to its calls.
class KeySource {
 public:
  // The next key for a draw in the module `module_path`.
  virtual RandomKey next_key(std::string_view module_path) = 0;
  // See mark_random_keys().
  virtual std::function<void()> mark() = 0;
  // Sets the source of this thread (null: that of the rank) and returns the previous one.
  static KeySource* set_current(KeySource* source);
  // The next key of `source`, which may be null: that of the rank.
  static RandomKey next_of(KeySource* source, std::string_view module_path);
  static std::function<void()> mark_of(KeySource* source);

 protected:
  ~KeySource() = default;
};

// Draws of one forward in one virtual shard of one step. While it lives, next_random_key() on this thread gives keys
// that depend on the rank's seed, the module path of the caller (ModuleScope), the ordinal of the draw inside that
// path, step and shard, and on nothing that counts calls or ranks (numerics contract, N6). So a model with dropout
// draws the same masks on any number of ranks.
class DrawScope final : public KeySource {
 public:
  // Both are below 2^32. UsageError.
  DrawScope(int64_t step, int64_t virtual_shard);
  ~DrawScope();
  DrawScope(const DrawScope&) = delete;
  DrawScope& operator=(const DrawScope&) = delete;
  RandomKey next_key(std::string_view module_path) override;
  std::function<void()> mark() override;

 private:
  const uint32_t step_, virtual_shard_;
  std::map<std::string, uint64_t, std::less<>> next_;  // ordinals, per module path
  KeySource* previous_;
  bool kept_places_;
};

// The key that draws the part [offsets, offsets + part) of a tensor of `sizes` on its own.
// UsageError when the runs of the part are not evenly spaced: besides the outermost dim only one dim may be cut.
RandomKey part_of(const RandomKey& whole, const Extents& sizes, const Extents& part, const Extents& offsets);

}  // namespace tutti
