// In which way one tokenizer is not another.
#pragma once

#include <string>

#include "tutti/io/tokenizer.h"

namespace tutti {

// One sentence about the first difference: the number of tokens, the marker that begins or ends a document, a token's
// bytes, else the rules that split and merge text. "" when the fingerprints are equal.
std::string first_difference(const Tokenizer& before, const Tokenizer& now);

}  // namespace tutti
