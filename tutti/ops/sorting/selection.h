// One element of each line of a tensor, selected by its rank or by how often it occurs: what median, nanmedian,
// kthvalue and mode share. The order is that of tutti/ops/sorting/order.h, and of equal elements the one with the
// lowest index is returned.
#pragma once

#include <algorithm>
#include <functional>
#include <type_traits>
#include <vector>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/sorting/lines.h"
#include "tutti/ops/sorting/order.h"

namespace tutti::facets {

struct SelectionAttrs {
  int64_t dim;  // normalized; 0 for a 0-dim tensor, which is a line of one element
  bool keepdim;
  int64_t k = 0;  // kthvalue: the rank, counted from 1
  static constexpr auto fields() {
    return field_list(field::number<&SelectionAttrs::dim>("dim"), field::number<&SelectionAttrs::keepdim>("keepdim"),
                      field::number<&SelectionAttrs::k>("k"));
  }
};
inline const SelectionAttrs& selection_attrs(const OpCall& call) { return call.attrs.as<SelectionAttrs>(); }

// ---- facets ---------------------------------------------------------------------------------------------------------

// Values and indices, one per line. UsageError for lines without elements.
void infer_selection(const OpCall& call, OutputMetas& out);
// The cotangent of the values at the selected elements, zeros elsewhere.
void selection_vjp(const VjpCall& call, std::span<Tensor> grads);
// "#x[Ab] -> v[b] #i[b]"
std::string selection_sharding(const OpCall& call);
Attrs selection_attrs_of(const char* where, const Tensor& x, int64_t dim, bool keepdim, int64_t k = 0);

// ---- kernel ---------------------------------------------------------------------------------------------------------

// Unsigned numbers that compare as the values do. Dtypes of up to 32 bits have keys of 32 bits, which are selected
// faster.
template <class T>
using SelectionKey = std::conditional_t<sizeof(T) <= 4, uint32_t, uint64_t>;

template <class T>
SelectionKey<T> selection_key(T value) {
  if constexpr (sizeof(T) > 4) {
    return order_key(value);
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<uint32_t>(static_cast<int32_t>(value)) ^ uint32_t { 1 } << 31;
  } else {
    float number;
    if constexpr (std::is_floating_point_v<T>) number = value;
    else number = to_float(value);
    if (number != number) return ~uint32_t{0};
    const uint32_t bits = std::bit_cast<uint32_t>(number == 0.0f ? 0.0f : number);
    return bits >> 31 ? ~bits : bits | uint32_t{1} << 31;
  }
}

// The keys of a line, which a selection may reorder.
template <class Key>
struct KeyRange {
  Key *begin, *end;
  bool may_have_nan;  // the dtype is a float, whose NaN has the largest key
  static constexpr Key kNan = ~Key{0};

  int64_t size() const { return end - begin; }
  // The key with `rank` keys before it.
  Key at_rank(int64_t rank) const {
    std::nth_element(begin, begin + rank, end);
    return begin[rank];
  }
  bool has_nan() const { return may_have_nan && std::find(begin, end, kNan) != end; }
  KeyRange without_nan() const { return {begin, may_have_nan ? std::remove(begin, end, kNan) : end, may_have_nan}; }
};

// Writes an element of each line of `x` along `dim` to `values`, and its index in the line to `indices` unless that is
// null. select(KeyRange<Key>) returns the key of that element.
template <class Select>
void select_in_lines(const Tensor& x, int dim, const Tensor& values, int64_t* indices, Select select) {
  if (values.numel() == 0) return;
  const size_t d = static_cast<size_t>(dim);
  const int64_t length = x.ndim() == 0 ? 1 : x.extents()[d], step = x.ndim() == 0 ? 1 : x.strides()[d];
  visit_dtype(x.dtype(), [&]<class T>() {
    using Key = SelectionKey<T>;
    for_each_line(x, dim, [&](int64_t begin, int64_t end) {
      std::vector<Key> keys(static_cast<size_t>(length));
      for (int64_t l = begin; l < end; ++l) {
        const T* from = static_cast<const T*>(x.raw_data()) + line_offset(x, dim, l);
        for (int64_t i = 0; i < length; ++i) keys[static_cast<size_t>(i)] = selection_key(from[i * step]);
        const Key selected = select(KeyRange<Key>{keys.data(), keys.data() + length, !std::is_integral_v<T>});
        int64_t at = 0;
        while (selection_key(from[at * step]) != selected) ++at;
        static_cast<T*>(values.raw_data())[l] = from[at * step];
        if (indices) indices[l] = at;
      }
    });
  });
}

// ---- reference ------------------------------------------------------------------------------------------------------

// The elements of a line and how their values compare.
struct SelectionLine {
  const Tensor& x;
  const std::vector<int64_t>& offsets;
  int64_t size() const { return static_cast<int64_t>(offsets.size()); }
  bool is_nan(int64_t i) const;
  bool less(int64_t a, int64_t b) const;
  // The first element with at most `rank` elements before it and more than `rank` before or equal to it, NaN left out
  // on request.
  int64_t first_at_rank(int64_t rank, bool leaves_out_nan = false) const;
};
// As select_in_lines, for lines over several dims; select(line) returns an index.
void reference_select(const Tensor& x, const Dims& dims, std::span<const Tensor> outputs,
                      const std::function<int64_t(const SelectionLine&)>& select);

}  // namespace tutti::facets
