#include "tutti/ops/engine/philox_words.h"

namespace tutti::facets {
namespace {

int64_t counter_high(const RandomKey& key) {
  return static_cast<int64_t>(uint64_t{key.virtual_shard} << 32 | key.step);
}

}  // namespace

void write_key(const RandomKey& key, codegen::ParamValue* params) {
  params[0].i = static_cast<int64_t>(key.key);
  params[1].i = counter_high(key);
  params[2].i = key.first_index;
  params[3].i = key.run_length;
  params[4].i = key.run_stride;
}

Expr global_index(RecipeBuilder& b, const RandomKey& key) {
  const Expr i = b.linear_index(), first = b.param(2, DType::i64);
  if (key.run_length == 0) return first + i;
  const Expr length = b.param(3, DType::i64), run = apply_scalar(ScalarOp::floordiv, i, length);
  return first + (run * b.param(4, DType::i64) + (i - run * length));
}

Expr random_word(RecipeBuilder& b, Expr index) {
  return apply_scalar(ScalarOp::philox, index, b.param(0, DType::i64), b.param(1, DType::i64));
}

uint32_t random_word(const RandomKey& key, int64_t index) {
  const uint64_t block = static_cast<uint64_t>(index) / 4;
  const PhiloxCounter counter = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), key.step,
                                 key.virtual_shard};
  return philox4x32(counter, philox_key(key.key))[static_cast<size_t>(index) % 4];
}

}  // namespace tutti::facets
