// How two tokenizers differ.
#pragma once

#include <string>

#include "tutti/io/tokenizer.h"

namespace tutti {

// One sentence about the first difference: the number of tokens, BOS or EOS, the bytes of a token, or else the rules
// that split and merge text. "" when the fingerprints are equal.
std::string first_difference(const Tokenizer& before, const Tokenizer& now);

}  // namespace tutti
