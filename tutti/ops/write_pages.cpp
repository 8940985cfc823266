#include "tutti/ops/write_pages.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tutti/codegen/codes/row_codes.h"
#include "tutti/core/error.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti {
namespace {

constexpr const char* kNoGradient = "it serves generation; train with sdpa, whose bits are the same";
constexpr int64_t kRowsOfATask = 16;

// Inputs: pages, scales of codes, rows and slots.
const Tensor& rows_of(const OpCall& call) { return call[call.inputs.size() - 2]; }
const Tensor& slots_of(const OpCall& call) { return call.inputs.back(); }

int64_t slot_of(const Tensor& slots, int64_t row) { return facets::read_int64(slots, row * slots.strides()[0]); }

void check_slots(const OpCall& call) {
  const Tensor &pages = call[0], &slots = slots_of(call);
  const int64_t places = pages.extent(0) * pages.extent(2);
  for (int64_t t = 0; t < slots.extent(0); ++t) {
    const int64_t slot = slot_of(slots, t);
    TUTTI_CHECK(slot >= -1 && slot < places, "{}: slot {} of row {}; {} pages of {} keys have slots 0 to {}",
                call.op.name, slot, t, pages.extent(0), pages.extent(2), places - 1);
  }
}

// The place of head h in the slot, of pages [P, Hkv, N, ...].
template <class T = char>
T* place_of(const Tensor& pages, int64_t slot, int64_t h) {
  const Extents& st = pages.strides();
  const int64_t N = pages.extents()[2], offset = slot / N * st[0] + h * st[1] + slot % N * st[2];
  return reinterpret_cast<T*>(static_cast<char*>(pages.raw_data()) + offset * itemsize(pages.dtype()));
}
const char* row_of(const Tensor& rows, int64_t t, int64_t h) {
  const Extents& st = rows.strides();
  return static_cast<const char*>(rows.raw_data()) + (t * st[0] + h * st[1]) * itemsize(rows.dtype());
}

void copy_strided(const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t count, int64_t size) {
  for (int64_t d = 0; d < count; ++d)
    std::memcpy(to + d * to_stride * size, from + d * from_stride * size, static_cast<size_t>(size));
}

// visit(row, head, slot) for the rows [begin, end) that are written.
template <class Visit>
void for_each_row(const OpCall& call, int64_t begin, int64_t end, Visit visit) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t slot = slot_of(slots_of(call), t);
    for (int64_t h = 0; slot >= 0 && h < rows_of(call).extents()[1]; ++h) visit(t, h, slot);
  }
}

template <class Visit>
void for_each_row_of_tasks(const OpCall& call, Visit visit) {
  ThreadPool::current().parallel_for(rows_of(call).extents()[0], kRowsOfATask,
                                     [&](int64_t begin, int64_t end) { for_each_row(call, begin, end, visit); });
}

// ---- numbers --------------------------------------------------------------------------------------------------------

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& rows = rows_of(call);
  for_each_row(call, 0, rows.extents()[0], [&](int64_t t, int64_t h, int64_t slot) {
    copy_strided(row_of(rows, t, h), rows.strides()[2], place_of(outputs[0], slot, h), outputs[0].strides()[3],
                 rows.extents()[2], itemsize(rows.dtype()));
  });
}

void kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor& rows = rows_of(call);
  if (rows.numel() == 0) return;
  if (rows.strides()[2] != 1 || outputs[0].strides()[3] != 1) return reference(call, outputs);
  const auto nbytes = static_cast<size_t>(rows.extents()[2] * itemsize(rows.dtype()));
  for_each_row_of_tasks(call, [&](int64_t t, int64_t h, int64_t slot) {
    std::memcpy(place_of(outputs[0], slot, h), row_of(rows, t, h), nbytes);
  });
}

Tensor sample_slots(int64_t T) {
  const Tensor slots = Tensor::empty({T}, DType::i64);
  for (int64_t t = 0; t < T; ++t) slots.data<int64_t>()[t] = t == 2 ? -1 : 11 - 2 * t;
  return slots;
}

std::vector<Sample> samples() {
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const int64_t T : {0, 1, 5})
      list.push_back(
          {fmt::format("{}_rows_{}", T, name_of(dtype)),
           {facets::sample_tensor(1, {3, 2, 4, 6}, dtype), facets::sample_tensor(2, {T, 2, 6}, dtype), sample_slots(T)},
           {}});
  }
  return list;
}

const OpDef kWritePages{
    .name = "write_pages_",
    .num_inputs = 3,
    .writes = {0, -1, -1, -1},
    .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
    .reference = reference,
    .gradient = {.none = kNoGradient},
    .check = check_slots,
    .kernel = kernel,  // places that data name: no loop nest
    .sharding = [](const OpCall&) { return std::string("#p[PkND] #r[TkD] #s[T] -> o[PkND] | |"); },
    .samples = samples,
    .tolerance = {.f32 = 0, .f64 = 0}};

// ---- codes ----------------------------------------------------------------------------------------------------------

// The rule of codegen/codes/row_codes.h, element by element.
void reference_codes(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &rows = rows_of(call), &codes = outputs[0];
  const int64_t D = rows.extents()[2];
  const bool is_int8 = codes.dtype() == DType::i8;
  for_each_row(call, 0, rows.extents()[0], [&](int64_t t, int64_t h, int64_t slot) {
    const auto x = [&](int64_t d) {
      const Extents& st = rows.strides();
      return static_cast<float>(facets::read_double(rows, t * st[0] + h * st[1] + d * st[2]));
    };
    float largest = 0;
    bool is_finite = true;
    for (int64_t d = 0; d < D; ++d) {
      largest = std::fmax(largest, std::fabs(x(d)));
      is_finite = is_finite && std::isfinite(x(d));
    }
    const float scale = largest / (is_int8 ? 127.0F : 448.0F);
    const bool is_zero = !is_finite || !std::isnormal(scale);
    *place_of<float>(outputs[1], slot, h) = !is_finite ? std::numeric_limits<float>::quiet_NaN()
                                            : is_zero  ? 0.0F
                                                       : scale;
    for (int64_t d = 0; d < D; ++d) {
      char* const code = place_of(codes, slot, h) + d * codes.strides()[3];
      const float scaled = is_zero ? 0.0F : x(d) * (1 / scale);
      *code = is_int8 ? static_cast<char>(std::nearbyint(scaled)) : std::bit_cast<char>(to_float8_e4m3fn(scaled));
    }
  });
}

void kernel_codes(const OpCall& call, std::span<const Tensor> outputs) {
  const Tensor &rows = rows_of(call), &codes = outputs[0];
  const int64_t D = rows.extents()[2], size = itemsize(rows.dtype()), in_row = rows.strides()[2],
                in_page = codes.strides()[3];
  const auto write = [&](int64_t t, int64_t h, int64_t slot) {
    const char* from = row_of(rows, t, h);
    char* to = place_of(codes, slot, h);
    if (in_row == 1 && in_page == 1) return codegen::quantize_row(from, rows.dtype(), D, codes.dtype(), to);
    std::vector<char> dense(static_cast<size_t>(D * size)), row_codes(static_cast<size_t>(D));
    copy_strided(from, in_row, dense.data(), 1, D, size);
    const float scale = codegen::quantize_row(dense.data(), rows.dtype(), D, codes.dtype(), row_codes.data());
    copy_strided(row_codes.data(), 1, to, in_page, D, 1);
    return scale;
  };
  for_each_row_of_tasks(
      call, [&](int64_t t, int64_t h, int64_t slot) { *place_of<float>(outputs[1], slot, h) = write(t, h, slot); });
}

std::vector<Sample> samples_of_codes() {
  std::vector<Sample> list;
  for (const DType code : {DType::i8, DType::f8e4m3fn}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t T : {0, 1, 5})
        list.push_back({fmt::format("{}_rows_{}_{}", T, name_of(dtype), name_of(code)),
                        {facets::sample_tensor(1, {3, 2, 4, 11}, code, -8, 8), facets::sample_tensor(3, {3, 2, 4}),
                         facets::sample_tensor(2, {T, 2, 11}, dtype), sample_slots(T)},
                        {}});
    }
  }
  return list;
}

const OpDef kWritePageCodes{
    .name = "write_page_codes_",
    .num_inputs = 4,
    .num_outputs = 2,
    .writes = {0, 1, -1, -1},
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          for (size_t i : {0, 1}) out.add(call[i].dtype(), call[i].sizes());
        },
    .reference = reference_codes,
    .gradient = {.none = kNoGradient},
    .check = check_slots,
    .kernel = kernel_codes,  // as write_pages_
    .sharding = [](const OpCall&) { return std::string("#p[PkND] #c[PkN] #r[TkD] #s[T] -> o[PkND] z[PkN] | |"); },
    .samples = samples_of_codes,
    .tolerance = {.f32 = 0, .f64 = 0}};

void check_sizes(const char* name, const Tensor& pages, const Tensor& rows, const Tensor& slots) {
  TUTTI_CHECK(pages.ndim() == 4 && rows.ndim() == 3 && rows.size(1) == pages.size(1) && rows.size(2) == pages.size(3),
              "{}: rows are {}, pages {}; expected rows [T, Hkv, D] of pages [P, Hkv, N, D]", name, describe(rows),
              describe(pages));
  TUTTI_CHECK(slots.ndim() == 1 && slots.size(0) == rows.size(0) && is_integral(slots.dtype()),
              "{}: slots are {}; expected integers [{}]", name, describe(slots), rows.size(0));
}

}  // namespace

void write_pages_(const Tensor& pages, const Tensor& rows, const Tensor& slots) {
  check_sizes("write_pages_", pages, rows, slots);
  TUTTI_CHECK(rows.dtype() == pages.dtype(), "write_pages_: rows are {}, pages {}; expected one dtype", describe(rows),
              describe(pages));
  const Tensor inputs[] = {pages, rows, slots};
  Tensor outputs[1];
  apply(kWritePages, inputs, {}, outputs);
}

void write_page_codes_(const Tensor& codes, const Tensor& scales, const Tensor& rows, const Tensor& slots) {
  check_sizes("write_page_codes_", codes, rows, slots);
  TUTTI_CHECK(codegen::is_row_code(codes.dtype()) && codegen::has_row_codes(rows.dtype()),
              "write_page_codes_: rows are {}, codes {}; expected rows of f32, bf16 or f16 and codes of i8 or f8e4m3fn",
              describe(rows), describe(codes));
  TUTTI_CHECK(scales.dtype() == DType::f32 && scales.ndim() == 3 && scales.size(0) == codes.size(0) &&
                  scales.size(1) == codes.size(1) && scales.size(2) == codes.size(2),
              "write_page_codes_: scales are {}; expected f32 [{}, {}, {}], one for each row of {}", describe(scales),
              codes.size(0), codes.size(1), codes.size(2), describe(codes));
  const Tensor inputs[] = {codes, scales, rows, slots};
  Tensor outputs[2];
  apply(kWritePageCodes, inputs, {}, outputs);
}

}  // namespace tutti

TUTTI_OPS(write_pages, &::tutti::kWritePages, &::tutti::kWritePageCodes)
