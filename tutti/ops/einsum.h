// Einstein summation.
#pragma once

#include <span>
#include <string_view>

#include "tutti/tensor/tensor.h"

namespace tutti {

// The product of the operands, summed over the letters that the result does not have, as in "bij,bjk->bik".
//
// Each letter names a dim and has the same size everywhere; a letter that appears twice in one operand takes the
// diagonal. "..." stands for any number of further dims, which broadcast from the right. Without "->" the result has
// the dims of "...", then the letters that occur once, in alphabetical order. Spaces are ignored. Order: operands are
// multiplied from left to right, two at a time, by matmul(); sums over letters that only one operand has come first.
// Dtypes: floats, or any type where nothing is multiplied. UsageError for a letter with two sizes, an operand whose
// number of dims differs from its number of letters, or a letter of the result that no operand has. Source: definition.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands);
Tensor einsum(std::string_view equation, const Tensor& a);
Tensor einsum(std::string_view equation, const Tensor& a, const Tensor& b);

}  // namespace tutti
