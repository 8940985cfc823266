// Words for ops that move elements: loops over indices for references, raw copies for kernels, letters for rules.
#pragma once

#include <functional>
#include <string>

#include "tutti/tensor/tensor.h"

namespace tutti::facets {

// ---- references -----------------------------------------------------------------------------------------------------

// Calls visit(at) for every index of `sizes` in row-major order.
void for_each_index(const Extents& sizes, const std::function<void(const Extents& at)>& visit);
// Elements from raw_data() to the element at index `at`.
int64_t offset_at(const Tensor& t, const Extents& at);
// target[at_target] = source[at_source], bit for bit; the dtypes agree.
void move_element(const Tensor& target, const Extents& at_target, const Tensor& source, const Extents& at_source);
// Every element of a dense tensor set to `value`.
void fill_elements(const Tensor& target, double value);

// ---- kernels --------------------------------------------------------------------------------------------------------

// target = source, bit for bit, any strides (also negative), parallel. Sizes and item sizes agree.
void raw_copy(const Tensor& target, const Tensor& source);
// Every element of `target` set to `value`, any strides.
void raw_fill(const Tensor& target, double value);

// The zero that padding and missing cotangents are made of: x + kSumIdentity has the bits of x (numerics contract, N8).
inline constexpr double kSumIdentity = -0.0;

// ---- sharding text --------------------------------------------------------------------------------------------------

// "abc..." for `ndim` dims, the dims whose bit is set in `whole` in upper case.
std::string dim_letters(int ndim, uint32_t whole = 0);

}  // namespace tutti::facets
