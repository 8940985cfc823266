#include "tutti/ops/random_key.h"

#include <cstring>
#include <string>
#include <utility>

#include "tutti/core/hash.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/trace_context.h"

namespace tutti {
namespace {

thread_local KeySource* current_source = nullptr;

uint64_t hash_of(uint64_t seed, std::string_view path, uint64_t ordinal) {
  std::string bytes(16, '\0');
  std::memcpy(bytes.data(), &seed, 8);
  std::memcpy(bytes.data() + 8, &ordinal, 8);
  return hash64(bytes.append(path));
}

}  // namespace

RandomKey random_key(std::string_view path, uint64_t ordinal, uint32_t step, uint32_t virtual_shard) {
  return {.key = hash_of(RankContext::current().seed, path, ordinal), .step = step, .virtual_shard = virtual_shard};
}

KeySource* KeySource::set_current(KeySource* source) { return std::exchange(current_source, source); }

std::string_view current_module_path() {
  const TracePlace* place = TraceContext::current().place;
  return place == nullptr ? std::string_view() : place->module_path;
}

RandomKey KeySource::next_of(KeySource* source, std::string_view module_path) {
  if (source != nullptr) return source->next_key(module_path);
  RankContext& context = RankContext::current();
  // No module has this path, so anonymous draws meet no named ones.
  return {.key = hash_of(context.seed, std::string_view("\0draw", 5), context.next_draw++)};
}

std::function<void()> KeySource::mark_of(KeySource* source) {
  if (source != nullptr) return source->mark();
  RankContext& context = RankContext::current();
  return [&context, next = context.next_draw.load()] { context.next_draw = next; };
}

RandomKey next_random_key() { return KeySource::next_of(current_source, current_module_path()); }

RandomKey next_random_key(std::string_view inside) {
  const std::string_view here = current_module_path();
  if (inside.empty() || here.empty()) return KeySource::next_of(current_source, inside.empty() ? here : inside);
  return KeySource::next_of(current_source, std::string(here).append(".").append(inside));
}

std::function<void()> mark_random_keys() { return KeySource::mark_of(current_source); }

static uint32_t checked_word(int64_t value, const char* what) {
  TUTTI_CHECK(value >= 0 && value <= UINT32_MAX, "DrawScope: {} is {}; expected 0 to 2^32 - 1", what, value);
  return static_cast<uint32_t>(value);
}

DrawScope::DrawScope(int64_t step, int64_t virtual_shard)
    : step_(checked_word(step, "step")),
      virtual_shard_(checked_word(virtual_shard, "virtual_shard")),
      previous_(KeySource::set_current(this)),
      kept_places_(std::exchange(TraceContext::current().keeps_places, true)) {}

DrawScope::~DrawScope() {
  KeySource::set_current(previous_);
  TraceContext::current().keeps_places = kept_places_;
}

RandomKey DrawScope::next_key(std::string_view path) {
  auto it = next_.find(path);
  if (it == next_.end()) it = next_.emplace(path, 0).first;
  return random_key(path, it->second++, step_, virtual_shard_);
}

std::function<void()> DrawScope::mark() {
  return [this, next = next_] { next_ = next; };
}

// `part` is cut from something that is itself a part, `whole`: both as keys, the first relative to the second.
static RandomKey compose(const RandomKey& whole, RandomKey part, int64_t count) {
  if (whole.run_length == 0) {
    part.first_index += whole.first_index;
    return part;
  }
  const int64_t length = whole.run_length, inside = part.first_index % length;
  part.first_index = whole.index_of(part.first_index);
  if (part.run_length == 0 && inside + count <= length) return part;  // a piece of one run
  if (part.run_length == 0 && inside == 0 && count % length == 0) {   // whole runs
    part.run_length = length;
    part.run_stride = whole.run_stride;
    return part;
  }
  TUTTI_CHECK(
      part.run_length != 0 && inside + part.run_length <= length && part.run_stride % length == 0,
      "part_of: the key belongs to a part with runs of {} elements, which the new part cuts unevenly; cut the whole "
      "tensor at once",
      length);
  part.run_stride = part.run_stride / length * whole.run_stride;
  return part;
}

RandomKey part_of(const RandomKey& whole, const Extents& sizes, const Extents& part, const Extents& offsets) {
  const Extents strides = contiguous_strides(sizes);
  RandomKey key{.key = whole.key, .step = whole.step, .virtual_shard = whole.virtual_shard, .stand_in = whole.stand_in};
  if (numel_of(part) == 0) return key;
  for (size_t d = 0; d < sizes.size(); ++d) key.first_index += offsets[d] * strides[d];
  // Dims from the last one on that are whole form one run with the first that is cut.
  int d = sizes.ndim() - 1;
  while (d >= 0 && part[static_cast<size_t>(d)] == sizes[static_cast<size_t>(d)]) --d;
  if (d < 0) return whole;
  const size_t cut = static_cast<size_t>(d);
  int64_t runs = 1;
  const int64_t run_length = part[cut] * strides[cut], run_stride = sizes[cut] * strides[cut];
  for (size_t e = cut; e-- > 0;) {
    TUTTI_CHECK(part[e] == 1 || strides[e] == runs * run_stride,
                "part_of: the part {} of {} is cut along dims {} and {}; beside the outermost dim only one may be cut",
                part, sizes, e + 1, cut);
    runs *= part[e];
  }
  if (runs > 1) key.run_length = run_length, key.run_stride = run_stride;
  return compose(whole, key, numel_of(part));
}

}  // namespace tutti
