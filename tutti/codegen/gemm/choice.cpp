#include "tutti/codegen/gemm/choice.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <limits>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/disk_cache.h"
#include "tutti/codegen/gemm/kernel.h"
#include "tutti/codegen/generator_fingerprint.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

using choice::BucketKey;
using choice::Signature;

constexpr uint16_t kChunkBytes[] = {1024, 2048, 4096, 8192};
constexpr uint8_t kTasksPerThread[] = {1, 2, 4, 8};
// Changes when cuts mean something else than in files that were written before.
constexpr int kCutVersion = 2;

enum CutClass { kInPlace, kPacked, kCutClasses };

// The problem a signature describes, as far as cuts ask for it.
GemmProblem problem_of(const Signature& s) {
  const auto& [a, b, c] = s.operands;
  return {a.sizes[1],
          b.sizes[2],
          a.sizes[2],
          {nullptr, a.dtype, a.strides[1], a.strides[2]},
          {nullptr, b.dtype, b.strides[1], b.strides[2]},
          nullptr,
          c.dtype,
          c.strides[1],
          c.strides[2],
          {a.sizes[0], a.strides[0], b.strides[0], c.strides[0]},
          s.accumulator,
          static_cast<CpuTarget>(s.arch)};
}

// The problem that is solved under the cut.
GemmProblem solved(const GemmCut& cut, const Signature& s) {
  const GemmProblem p = problem_of(s);
  return cut.transposed ? transposed(p) : p;
}

int64_t vectors_of(const GemmProblem& p) {
  const int64_t lanes = gemm_lanes(p.target, p.compute);
  return (p.n + lanes - 1) / lanes;
}

// Among the cuts that mean the same for a call, the one with the smallest numbers: EvenSplit makes 3 strips of 7 of 21
// rows whether 7 or 8 are allowed.
GemmCut smallest_equal(const GemmCut& cut, const GemmProblem& p) {
  GemmCut same = cut;
  same.rows = static_cast<uint8_t>(EvenSplit::at_most(p.m, cut.rows).largest());
  same.vectors = static_cast<uint8_t>(EvenSplit::at_most(vectors_of(p), cut.vectors).largest());
  return same;
}

bool has_distinct_tile(const GemmCut& cut, const Signature& s) { return smallest_equal(cut, solved(cut, s)) == cut; }

bool has_distinct_chunks(const GemmCut& cut, const Signature& s) {
  const TileKind kind = problem_of(s).kind();
  const int64_t column_bytes = items_of(kind, s.operands[0].sizes[2]) * item_bytes(kind);
  return cut.chunk_bytes == kChunkBytes[1] ||
         (cut.chunk_bytes < kChunkBytes[1] ? column_bytes > cut.chunk_bytes : column_bytes > cut.chunk_bytes / 2);
}

bool has_threads_for_tasks(const GemmCut& cut, const Signature& s) {
  return s.threads > 1 || cut.tasks_per_thread == kTasksPerThread[2];
}

bool may_stay(const GemmCut& cut, const Signature& s) {
  return !cut.b_in_place || can_stay_in_place(problem_of(s), cut.transposed);
}

// How far a cut is from the usual one: how many settings differ, then how much of the tile's work is loads.
double distance(const GemmCut& cut, const Signature& s) {
  const GemmProblem p = problem_of(s);
  GemmCut usual = usual_cut(p);
  usual = smallest_equal(usual, usual.transposed ? transposed(p) : p);
  const int settings = (cut.transposed != usual.transposed) + (cut.b_in_place != usual.b_in_place) +
                       (cut.rows != usual.rows || cut.vectors != usual.vectors) +
                       (cut.chunk_bytes != usual.chunk_bytes) + (cut.tasks_per_thread != usual.tasks_per_thread);
  const double rows = cut.rows, vectors = cut.vectors;
  return settings == 0 ? 0.0 : settings + 0.5 * (rows + vectors) / (2 * rows * vectors);
}

std::string name_of_cut(const GemmCut& cut) {
  return fmt::format("{}{} {}x{}v chunk {} tasks {}", cut.transposed ? "transposed " : "",
                     cut.b_in_place ? "in-place" : "packed", cut.rows, cut.vectors, cut.chunk_bytes,
                     cut.tasks_per_thread);
}

}  // namespace

Signature gemm_signature(const GemmProblem& p, int threads) {
  const auto operand = [&](const GemmOperand& x, int64_t rows, int64_t columns, int64_t batch_stride) {
    const int64_t step = p.batch.count == 1 ? 0 : batch_stride;  // between problems, of which there is one
    return choice::tensor_signature(x.dtype, std::array{p.batch.count, rows, columns},
                                    std::array{step, x.row_stride, x.column_stride}, x.data);
  };
  Signature s{.op = "gemm",
              .operands = {operand(p.a, p.m, p.k, p.batch.a_stride), operand(p.b, p.k, p.n, p.batch.b_stride),
                           operand({p.c, p.c_dtype, p.c_row_stride, p.c_column_stride}, p.m, p.n, p.batch.c_stride)},
              .accumulator = p.compute,
              .arch = static_cast<uint16_t>(p.target),
              .classes = kCutClasses,
              .threads = static_cast<uint16_t>(threads),
              .epilogue = {}};
  return s;
}

std::vector<GemmCut> gemm_cuts(const BucketKey& bucket) {
  const auto target = static_cast<CpuTarget>(bucket.arch);
  std::vector<GemmCut> cuts;
  for (const bool transposed : {false, true})
    for (const bool in_place : {true, false})
      for (uint8_t rows = 1; rows <= most_rows(target); ++rows)
        for (uint8_t vectors = 1; vectors <= most_vectors(target, rows); ++vectors)
          for (const uint16_t chunk_bytes : kChunkBytes)
            for (const uint8_t tasks : kTasksPerThread)
              cuts.push_back({transposed, in_place, rows, vectors, chunk_bytes, tasks});
  return cuts;
}

choice::ChoiceRules<GemmCut> gemm_choice_rules() {
  return {.predicates = {{"threads for its tasks", has_threads_for_tasks},
                         {"chunks of their own", has_distinct_chunks},
                         {"b may stay in place", may_stay},
                         {"a tile of its own", has_distinct_tile}},
          .classify = [](const GemmCut& cut,
                         const Signature&) { return static_cast<int>(cut.b_in_place ? kInPlace : kPacked); },
          .cost = distance,
          .name = name_of_cut};
}

double microseconds_of(FunctionRef<void()> run) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    run();
  } catch (const EnvironmentError&) {
    // A tile cannot be compiled, packed operands do not fit, a library lacks a kernel.
    return std::numeric_limits<double>::infinity();
  }
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

GemmCut GemmChooser::measured(const GemmProblem& p, int threads, FunctionRef<void(const GemmCut&)> run) {
  if (ThreadPool::is_inside_loop()) return usual_cut(p);
  const auto time = [&](const GemmCut& cut) { return microseconds_of([&] { run(cut); }); };
  return engine_.choose_unless_busy(gemm_signature(p, threads), time).value_or(usual_cut(p));
}

GemmCut GemmChooser::known(const GemmProblem& p, int threads) {
  if (!engine_.options().may_measure()) return usual_cut(p);
  return engine_.find(gemm_signature(p, threads)).value_or(usual_cut(p));
}

choice::ChoiceOptions gemm_choice_options() {
  const char* text = std::getenv("TUTTI_GEMM_CHOICE");
  return choice::parse_choice_options(text ? text : "", "TUTTI_GEMM_CHOICE");
}

choice::WinnerStore* gemm_winner_store(const std::string& what) {
  if (!gemm_choice_options().may_measure()) return nullptr;
  return new choice::WinnerStore(
      disk_cache_options_from_environment().directory,
      fmt::format("{}, {}, code {:016x}", choice::machine_identity(), what, generator_fingerprint()));
}

GemmChooser& process_gemm_chooser() {
  static GemmChooser* const chooser = new GemmChooser(
      gemm_choice_options(), gemm_winner_store(fmt::format("cuts {}", kCutVersion)));  // outlives all threads
  return *chooser;
}

}  // namespace tutti::codegen
