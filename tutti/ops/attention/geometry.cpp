#include "tutti/ops/attention/geometry.h"

#include <algorithm>
#include <cstring>

#include "tutti/codegen/codes/row_codes.h"
#include "tutti/codegen/gemm/pack.h"
#include "tutti/ops/attention/steps.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::attention {
namespace {

char* element(const Tensor& t, int64_t offset) {
  return static_cast<char*>(t.raw_data()) + offset * itemsize(t.dtype());
}

}  // namespace

Sizes sizes_of(const Tensor& q, const Tensor& k) {
  const Extents &a = q.extents(), &b = k.extents();
  return {a[0], a[1], b[1], a[2], b[2], a[3], b[2] == 0 ? 1 : a[2] / b[2]};
}

Sizes forward_sizes(const OpCall& call) {
  Sizes n = sizes_of(call[0], call[1]);
  if (!call.attrs.as<SdpaAttrs>().paged) return n;
  const Extents& pages = call[1].extents();
  n.Sk = call[5].extents()[1] * pages[2];
  n.Hkv = pages[1];
  n.G = n.Hkv == 0 ? 1 : n.Hq / n.Hkv;
  return n;
}

char* Rows::at(int64_t row) const {
  return static_cast<char*>(data) + (row / group * position_stride + row % group * head_stride) * itemsize(dtype);
}

// visit(first row, rows, distance) for runs of rows that lie evenly: heads of a position, or positions of a single
// head.
template <class Visit>
void Rows::for_runs(int64_t begin, int64_t count, Visit visit) const {
  if (group == 1) return visit(begin, count, position_stride);
  for (int64_t row = begin; row < begin + count;) {
    const int64_t end = std::min(begin + count, (row / group + 1) * group);
    visit(row, end - row, head_stride);
    row = end;
  }
}

void Rows::gather(int64_t begin, int64_t count, DType compute, void* dense, int64_t width) const {
  for_runs(begin, count, [&](int64_t row, int64_t rows, int64_t distance) {
    codegen::pack({at(row), dtype, distance, element_stride}, rows, length, compute,
                  static_cast<char*>(dense) + (row - begin) * width * itemsize(compute), width);
  });
}

void Rows::scatter(const void* dense, DType compute, int64_t width, int64_t begin, int64_t count) const {
  for_runs(begin, count, [&](int64_t row, int64_t rows, int64_t distance) {
    codegen::store_tile(static_cast<const char*>(dense) + (row - begin) * width * itemsize(compute), compute, width,
                        rows, length, at(row), dtype, distance, element_stride);
  });
}

Rows Rows::part(int64_t begin, int64_t count) const {
  Rows r = *this;
  r.data = static_cast<char*>(data) + begin * element_stride * itemsize(dtype);
  r.length = count;
  return r;
}

Rows rows_of(const Tensor& t, int64_t b, int64_t kv, int64_t group) {
  const Extents& st = t.strides();
  return {element(t, b * st[0] + kv * group * st[2]), t.dtype(), st[1], st[2], st[3], group, t.extents()[3]};
}
Rows statistics_of(const Tensor& t, int64_t b, int64_t kv, int64_t group) {
  const Extents& st = t.strides();
  return {element(t, b * st[0] + kv * group * st[2]), t.dtype(), st[1], st[2], 1, group, 1};
}
Rows mask_rows(const Tensor& mask, int64_t b, int64_t kv, const Sizes& n) {
  const Extents &e = mask.extents(), &st = mask.strides();
  const auto stride = [&](size_t dim) { return e[dim] == 1 ? 0 : st[dim]; };
  return {element(mask, b * stride(0) + kv * n.G * stride(1)), mask.dtype(), stride(2), stride(1), st[3], n.G, n.Sk};
}
Head head_of(const Tensor& t, int64_t b, int64_t h) {
  const Extents& st = t.strides();
  return {element(t, b * st[0] + h * st[2]), t.dtype(), st[1], st[3]};
}

void Head::prefetch(int64_t begin, int64_t end, int64_t length) const {
  constexpr int64_t kLine = 64;
  if (element_stride != 1) return;
  for (int64_t key = begin; key < end; ++key)
    for (int64_t offset = 0; offset < length * itemsize(dtype); offset += kLine)
      __builtin_prefetch(at(key) + offset, 0, 2);
}

KeySource::KeySource(const OpCall& call, size_t i)
    : data_(call[i]),
      table_(call.attrs.as<SdpaAttrs>().paged ? &call[5] : nullptr),
      scales_(table_ != nullptr && call.inputs.size() > 6 ? &call[i + 5] : nullptr) {}

Head KeySource::page_of(int64_t page, int64_t kv) const {
  const Extents& st = data_.strides();
  return {element(data_, page * st[0] + kv * st[1]), data_.dtype(), st[2], st[3]};
}

const float* KeySource::scale_of(int64_t page, int64_t kv, int64_t key) const {
  const Extents& st = scales_->strides();
  return static_cast<const float*>(scales_->raw_data()) + page * st[0] + kv * st[1] + key * st[2];
}

// Keys of one page.
void KeySource::decode(int64_t page, int64_t kv, int64_t key, int64_t keys, float* to) const {
  const Head head = page_of(page, kv);
  const int64_t D = data_.extents()[3], distance = scales_->strides()[2];
  const float* scales = scale_of(page, kv, key);
  if (head.element_stride == 1)
    return codegen::decode_rows(head.at(key), head.dtype, head.key_stride, scales, distance, keys, D, to);
  std::vector<char> row(static_cast<size_t>(D));
  for (int64_t k = 0; k < keys; ++k) {
    for (int64_t d = 0; d < D; ++d) row[static_cast<size_t>(d)] = head.at(key + k)[d * head.element_stride];
    codegen::decode_rows(row.data(), head.dtype, D, scales + k * distance, 0, 1, D, to + k * D);
  }
}

template <class Visit>
void KeySource::for_pages(int64_t b, int64_t key, int64_t end, Visit visit) const {
  const int64_t size = data_.extents()[2], first = key;
  while (key < end) {
    const int64_t number = key / size, within = key % size, keys = std::min(size - within, end - key);
    const int64_t page = facets::read_int64(*table_, b * table_->strides()[0] + number * table_->strides()[1]);
    visit(std::max<int64_t>(page, -1), within, keys, key - first);
    key += keys;
  }
}

Head KeySource::block(int64_t b, int64_t kv, int64_t key, int64_t keys, void* room) const {
  if (table_ == nullptr) {
    Head head = head_of(data_, b, kv);
    head.data = head.at(key);
    return head;
  }
  const int64_t D = data_.extents()[3], size = itemsize(dtype());
  for_pages(b, key, key + keys, [&](int64_t page, int64_t within, int64_t count, int64_t distance) {
    char* to = static_cast<char*>(room) + distance * D * size;
    if (page < 0) {
      std::memset(to, 0, static_cast<size_t>(count * D * size));
      return;
    }
    if (scales_ != nullptr) return decode(page, kv, within, count, reinterpret_cast<float*>(to));
    const Head head = page_of(page, kv);
    if (head.element_stride == 1 && head.key_stride == D) {
      std::memcpy(to, head.at(within), static_cast<size_t>(count * D * size));
      return;
    }
    for (int64_t at = 0; at < count * D; ++at)
      std::memcpy(to + at * size, head.at(within + at / D) + at % D * head.element_stride * size,
                  static_cast<size_t>(size));
  });
  return {room, dtype(), D, 1};
}

void KeySource::prefetch(int64_t b, int64_t kv, int64_t key, int64_t end) const {
  if (table_ == nullptr) return head_of(data_, b, kv).prefetch(key, end, data_.extents()[3]);
  for_pages(b, key, end, [&](int64_t page, int64_t within, int64_t count, int64_t) {
    if (page < 0) return;
    page_of(page, kv).prefetch(within, within + count, data_.extents()[3]);
    if (scales_ != nullptr) __builtin_prefetch(scale_of(page, kv, within), 0, 2);
  });
}

KeyRange keys_of(const OpCall& call, const Sizes& n, const Tensor& first_key, const Tensor& last_key, int64_t b,
                 int64_t s) {
  const SdpaAttrs& attrs = call.attrs.as<SdpaAttrs>();
  int64_t last = facets::read_int64(last_key, b * last_key.strides()[0] + s * last_key.strides()[1]);
  if (attrs.causal) last = std::min(last, s + n.Sk - n.Sq);
  int64_t first =
      std::max<int64_t>(facets::read_int64(first_key, b * first_key.strides()[0] + s * first_key.strides()[1]), 0);
  if (attrs.window >= 0) first = std::max(first, last - attrs.window);
  return {first, std::min(last, n.Sk - 1)};
}

Bounds::Bounds(const OpCall& call, const Sizes& n, const Tensor& first_key, const Tensor& last_key, int64_t b,
               int64_t begin, int64_t count)
    : first(static_cast<size_t>(count)), last(static_cast<size_t>(count)) {
  for (int64_t row = begin; row < begin + count;) {
    const KeyRange keys = keys_of(call, n, first_key, last_key, b, row / n.G);
    // Rows that see nothing are alike, and every bound fits 32 bits.
    const bool none = keys.first > keys.last;
    for (const int64_t end = std::min(begin + count, (row / n.G + 1) * n.G); row < end; ++row) {
      first[static_cast<size_t>(row - begin)] = static_cast<int32_t>(none ? n.Sk : keys.first);
      last[static_cast<size_t>(row - begin)] = static_cast<int32_t>(none ? -1 : keys.last);
    }
  }
}

Bounds::Seen Bounds::seen(int64_t begin, int64_t end, int64_t key, int64_t keys) const {
  const auto some = [&](int64_t row) {
    return first[static_cast<size_t>(row)] < key + keys && last[static_cast<size_t>(row)] >= key;
  };
  while (begin < end && !some(begin)) ++begin;
  while (begin < end && !some(end - 1)) --end;
  Seen result{begin, end, true};
  for (int64_t row = begin; row < end; ++row)
    result.all =
        result.all && first[static_cast<size_t>(row)] <= key && last[static_cast<size_t>(row)] >= key + keys - 1;
  return result;
}

bool Bounds::sees(int64_t begin, int64_t end, int64_t key, int64_t keys) const {
  for (size_t row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row)
    if (first[row] < key + keys && last[row] >= key) return true;
  return false;
}

KeyRange Bounds::range(int64_t begin, int64_t end) const {
  return {*std::min_element(first.begin() + begin, first.begin() + end),
          *std::max_element(last.begin() + begin, last.begin() + end)};
}

}  // namespace tutti::attention
