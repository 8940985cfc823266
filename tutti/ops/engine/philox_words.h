// Random words inside recipes and references: the shared part of every op that draws.
#pragma once

#include "tutti/core/philox.h"
#include "tutti/ops/engine/op_def.h"
#include "tutti/ops/random_key.h"

namespace tutti::facets {

// Parameters 0 to kKeyParams - 1 of a recipe that draws hold its key.
inline constexpr int kKeyParams = 5;
void write_key(const RandomKey& key, codegen::ParamValue* params);
// The variant number (Recipe::variant) for the part of the key that affects the code.
inline uint64_t key_variant(const RandomKey& key) { return key.run_length != 0; }

// Position of the element in the whole tensor, i64. `key` as given to write_key.
Expr global_index(RecipeBuilder& b, const RandomKey& key);
// The random word, 0 <= word < 2^32, of position `index`; i64.
Expr random_word(RecipeBuilder& b, Expr index);

// The same word on the host.
uint32_t random_word(const RandomKey& key, int64_t index);

}  // namespace tutti::facets
