#include "tutti/codegen/gemm/fast_gemm.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/choice.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

using choice::Signature;

constexpr int64_t kMostElements = std::numeric_limits<int32_t>::max();
// Rows or columns of C: what a thread gets is a multiple, so that no more than one part has an edge.
constexpr int64_t kPartUnit = 16;
// Changes when providers mean something else than in files that were written before.
constexpr int kProviderVersion = 1;

enum ProviderClass { kTree, kLibrary, kProviderClasses };

// Strides of rows x columns elements as libraries want them: one is 1, the other no less than what it steps over. Where
// there is one row or column, its stride says nothing.
struct Strides {
  int64_t row, column;

  Strides(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride)
      : row(row_stride), column(column_stride) {
    if (rows == 1) row = column == 1 ? columns : 1;
    else if (columns == 1) column = row == 1 ? rows : 1;
  }
  bool are_regular(int64_t rows, int64_t columns) const {
    return std::max(row, column) <= kMostElements && ((column == 1 && row >= columns) || (row == 1 && column >= rows));
  }
};

GemmOperand regular(const GemmOperand& x, int64_t rows, int64_t columns) {
  const Strides s(rows, columns, x.row_stride, x.column_stride);
  return {x.data, x.dtype, s.row, s.column};
}

bool reads_operands(const GemmProvider& provider, const Signature& s) {
  const auto is_regular = [](const choice::TensorSignature& t) {
    return std::max(t.sizes[1], t.sizes[2]) <= kMostElements &&
           Strides(t.sizes[1], t.sizes[2], t.strides[1], t.strides[2]).are_regular(t.sizes[1], t.sizes[2]);
  };
  return provider.library == nullptr || std::all_of(s.operands.begin(), s.operands.end(), is_regular);
}

// For bf16 a library may use instructions that the tree does not: dot products where TUTTI_CPU forbids them, tiles of
// AMX.
double preference(const GemmProvider& provider, const Signature& s) {
  if (provider.library == nullptr) return 0;
  if (s.operands[0].dtype != DType::bf16) return 1;
  return tile_kind(s.accumulator, static_cast<CpuTarget>(s.arch)) == TileKind::bf16_chain ||
                 __builtin_cpu_supports("amx-bf16")
             ? -1
             : 1;
}

std::string name_of_provider(const GemmProvider& provider) {
  return provider.library ? provider.library->name : "tree";
}

Signature signature_of(const GemmProblem& p, int threads) {
  Signature s = gemm_signature(p, threads);
  s.op = "gemm in any order";
  s.classes = kProviderClasses;
  return s;
}

}  // namespace

std::vector<GemmProvider> gemm_providers(const choice::BucketKey& bucket) {
  std::vector<GemmProvider> providers{{nullptr}};
  for (const GemmLibrary* library : gemm_libraries()) {
    if (library->multiplies(bucket.a, bucket.b, bucket.c)) providers.push_back({library});
  }
  return providers;
}

choice::ChoiceRules<GemmProvider> gemm_provider_rules() {
  return {.predicates = {{"operands as libraries read them", reads_operands}},
          .classify = [](const GemmProvider& provider,
                         const Signature&) { return static_cast<int>(provider.library ? kLibrary : kTree); },
          .cost = preference,
          .name = name_of_provider};
}

GemmProvider GemmProviderChooser::choose(const GemmProblem& p, int threads,
                                         FunctionRef<void(const GemmProvider&)> run) {
  const auto time = [&](const GemmProvider& provider) { return microseconds_of([&] { run(provider); }); };
  const Signature call = signature_of(p, threads);
  if (!engine_.options().may_measure()) return engine_.choose(call, time);
  if (ThreadPool::is_inside_loop()) return {nullptr};
  return engine_.choose_unless_busy(call, time).value_or(GemmProvider{nullptr});
}

GemmProvider GemmProviderChooser::known(const GemmProblem& p, int threads) {
  if (!engine_.options().may_measure())
    return engine_.choose(signature_of(p, threads), [](const GemmProvider&) { return 0.0; });
  return engine_.find(signature_of(p, threads)).value_or(GemmProvider{nullptr});
}

GemmProviderChooser& process_gemm_provider_chooser() {
  static GemmProviderChooser* const chooser = new GemmProviderChooser(
      gemm_choice_options(), gemm_winner_store(fmt::format("providers {}", kProviderVersion)));  // outlives all threads
  return *chooser;
}

void multiply_by(const GemmLibrary& library, const GemmProblem& p, ThreadPool& pool) {
  const bool cuts_rows = p.m >= p.n;
  const int64_t length = cuts_rows ? p.m : p.n, wanted = ThreadPool::is_inside_loop() ? 1 : pool.threads();
  const int64_t most_parts = (wanted + p.batch.count - 1) / p.batch.count, units = (length + kPartUnit - 1) / kPartUnit;
  const int64_t part = (units + most_parts - 1) / most_parts * kPartUnit, parts = (length + part - 1) / part;
  const GemmOperand a = regular(p.a, p.m, p.k), b = regular(p.b, p.k, p.n);
  const auto moved = [](const void* data, DType dtype, int64_t elements) {
    return static_cast<const std::byte*>(data) + elements * itemsize(dtype);
  };
  pool.parallel_for(p.batch.count * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t x = task / parts, first = task % parts * part, count = std::min(part, length - first);
      const int64_t row = cuts_rows ? first : 0, column = cuts_rows ? 0 : first;
      GemmOperand left = a, right = b;
      left.data = moved(a.data, a.dtype, x * p.batch.a_stride + row * a.row_stride);
      right.data = moved(b.data, b.dtype, x * p.batch.b_stride + column * b.column_stride);
      std::byte* const result =
          static_cast<std::byte*>(p.c) + (x * p.batch.c_stride + row * p.c_row_stride + column) * itemsize(p.c_dtype);
      const int64_t m = cuts_rows ? count : p.m, n = cuts_rows ? p.n : count;
      const char* complaint =
          library.multiply(m, n, p.k, left, right, {result, p.c_dtype, std::max(p.c_row_stride, n)});
      TUTTI_CHECK_ENV(complaint == nullptr,
                      "{} does not multiply {} [{}, {}] by [{}, {}]: {}; numerics mode strict uses no library",
                      library.name, name_of(p.a.dtype), m, p.k, p.k, n, complaint);
    }
  });
}

}  // namespace tutti::codegen
