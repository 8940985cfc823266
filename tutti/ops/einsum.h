// Einstein summation.
#pragma once

#include <span>
#include <string_view>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Products of operands summed over the letters that the result lacks: "bij,bjk->bik".
//
// Each letter names a dim and has one size everywhere; a letter twice in one operand takes the diagonal. "..." stands for
// any number of further dims, which broadcast from the right. Without "->" the result has the dims of "...", then the
// letters that occur once, in alphabetical order. Spaces are ignored.
// Order: operands are multiplied from left to right, two at a time, by matmul(); sums over letters of one operand come
// first. Dtypes: floats; all types where nothing is multiplied. Errors: a letter with two sizes, an operand with another
// number of dims than letters, a letter of the result that no operand has. Source: definition.
Tensor einsum(std::string_view equation, std::span<const Tensor> operands);
Tensor einsum(std::string_view equation, const Tensor& a);
Tensor einsum(std::string_view equation, const Tensor& a, const Tensor& b);

}  // namespace tutti
