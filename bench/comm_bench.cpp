#include "bench/comm_bench.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "tutti/comm/collective_def.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/symm/allocation.h"

namespace tutti::bench {
namespace {

using comm::CollectiveDef;
using comm::ProcessGroup;
using Clock = std::chrono::steady_clock;

// Small integers: their sums are exact, so the definition needs no tree.
float value_of(int rank, int64_t i) { return static_cast<float>((i * 7 + rank * 13) % 31); }

// Buffers of one case, plain or symmetric, and the call on them.
struct Setup {
  Tensor input, output;
  std::vector<std::unique_ptr<comm::SymmetricBuffer>> registered;
  std::function<void()> call;
  std::function<float(int rank, int64_t i)> expected;  // of output element i; empty: nothing to check
};

Tensor buffer(ProcessGroup& group, const CommCase& what, Setup& setup, int64_t count) {
  if (!what.symmetric) return Tensor::empty({count});
  const Tensor t = comm::symm::empty_symm({count}, DType::f32, kCpu, {.group = comm::symm_group(group)});
  setup.registered.push_back(std::make_unique<comm::SymmetricBuffer>(group, t));
  return t;
}

void fill(const Tensor& t, int rank) {
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = value_of(rank, i);
}

// Rows whose sides are single tensors, apart from splits; their names here are without "_single".
const std::vector<const CollectiveDef*>& rows() {
  static const std::vector<const CollectiveDef*> all = [] {
    const auto is_single = [](comm::Given g) { return g != comm::Given::list && g != comm::Given::list_on_root; };
    std::vector<const CollectiveDef*> found;
    for (const CollectiveDef* def : comm::collective_table()) {
      const bool is_plain = def->has_exchanges() && def->each == nullptr && !def->has_splits;
      if (is_plain && is_single(def->outputs) && is_single(def->inputs)) found.push_back(def);
    }
    return found;
  }();
  return all;
}

std::string name_in_bench(const CollectiveDef& def) {
  const std::string name = def.name;
  const size_t suffix = name.rfind("_single");
  return suffix == std::string::npos ? name : name.substr(0, suffix);
}

const CollectiveDef& row_of(const std::string& op) {
  for (const CollectiveDef* def : rows()) {
    if (name_in_bench(*def) == op) return *def;
  }
  throw UsageError(unknown_name_message("collective", op, comm_ops()));
}

bool holds_all(comm::Given given) { return given == comm::Given::whole || given == comm::Given::padded; }

int64_t size_of(comm::Given given, int64_t n, int ranks) { return holds_all(given) ? n * ranks : n; }

// What a call takes on one side. Splits are equal.
std::vector<Tensor> side_of(comm::Given given, const Tensor& t, int ranks) {
  if (given == comm::Given::none) return {};
  if (given != comm::Given::padded) return {t};
  return {t, Tensor::of(std::vector<int64_t>(static_cast<size_t>(ranks), t.numel() / ranks))};
}

void set_up(ProcessGroup& group, const CommCase& what, const CollectiveDef& def, Setup& s) {
  const int ranks = group.size();
  const bool has_whole = holds_all(def.inputs) || holds_all(def.outputs);
  const int64_t count = std::max<int64_t>(1, what.bytes / 4),
                n = has_whole ? std::max<int64_t>(1, count / ranks) : count;
  for (const auto& [given, t] : {std::pair(def.inputs, &s.input), std::pair(def.outputs, &s.output)}) {
    if (given == comm::Given::none) continue;
    *t = buffer(group, what, s, size_of(given, n, ranks));
    fill(*t, group.rank());
  }
  // The root goes round, from rank 0 on: one that only sends would otherwise be calls ahead of its peers, and what it
  // measures no collective.
  s.call = [&group, &def, in = side_of(def.inputs, s.input, ranks), out = side_of(def.outputs, s.output, ranks), ranks,
            root = 0]() mutable {
    group.run(
        {.kind = comm::kind_of(def), .outputs = out, .inputs = in, .root = std::exchange(root, (root + 1) % ranks)});
  };
  if (def.source == nullptr) return;
  s.expected = [&def, n, ranks](int rank, int64_t i) {
    const comm::Source from = def.source(i, n, {rank, ranks}, 0);
    float sum = 0;
    for (int r = from.first; r < from.last; ++r) sum += value_of(r, from.index);
    return sum;
  };
}

}  // namespace

const std::vector<std::string>& comm_ops() {
  static const std::vector<std::string> ops = [] {
    std::vector<std::string> names;
    for (const CollectiveDef* def : rows()) names.push_back(name_in_bench(*def));
    return names;
  }();
  return ops;
}

CommResult run_comm_case(ProcessGroup& group, const CommCase& what) {
  const CollectiveDef& def = row_of(what.op);
  Setup s;
  set_up(group, what, def, s);
  const int64_t moved = std::max(s.input.defined() ? s.input.nbytes() : 0, s.output.defined() ? s.output.nbytes() : 0);
  CommResult result{
      .what = what, .bytes = moved, .ranks = group.size(), .transport = group.backend(DeviceKind::cpu).name()};
  s.call();
  int64_t wrong = 0;
  for (int64_t i = 0; s.expected && i < s.output.numel(); ++i)
    wrong += s.output.data<float>()[i] != s.expected(group.rank(), i);
  // Sums of sums would grow without end; zeros stay, and cost the same.
  if (def.reduces && def.in_place != comm::InPlace::no) std::fill_n(s.output.data<float>(), s.output.numel(), 0.0f);

  // As many calls per sample as make about a millisecond; all ranks must agree on how many.
  const auto time_of = [&](int64_t calls) {
    group.barrier();
    const auto begin = Clock::now();
    for (int64_t i = 0; i < calls; ++i) s.call();
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / static_cast<double>(calls);
  };
  time_of(2);
  double once = time_of(10);
  group.all_reduce_values<double>({&once, 1}, comm::ReduceKind::max);
  const int64_t calls = std::clamp<int64_t>(static_cast<int64_t>(1000.0 / once), 1, 2000);
  const int samples = static_cast<int>(std::clamp(400'000.0 / (once * static_cast<double>(calls)), 9.0, 200.0));
  std::vector<double> times;
  for (int k = 0; k < samples; ++k) times.push_back(time_of(calls));
  std::sort(times.begin(), times.end());
  double figures[] = {times.front(), times[times.size() / 2], times[times.size() * 99 / 100]};
  group.broadcast(Tensor::from_memory(figures, {3}, DType::f64, {}), 0);
  group.all_reduce_values<int64_t>({&wrong, 1});
  result.min_us = figures[0], result.median_us = figures[1], result.p99_us = figures[2];
  result.algbw_gbs = static_cast<double>(moved) / result.median_us / 1e3;
  result.busbw_gbs = result.algbw_gbs * (def.wire == nullptr ? 1.0 : def.wire(group.size()));
  result.wrong = wrong;
  return result;
}

// ---- digests --------------------------------------------------------------------------------------------------------

namespace {

// Bytes that are legal values of every dtype and make sums depend on their order. The same on every transport.
Tensor digest_input(DType dtype, int64_t count, int rank) {
  const Tensor t = Tensor::empty({count}, dtype);
  uint64_t state = hash64(&rank, sizeof rank, static_cast<uint64_t>(count) * 31 + static_cast<uint64_t>(dtype));
  const auto next = [&state] { return state = state * 6364136223846793005u + 1442695040888963407u, state >> 33; };
  visit_dtype(dtype, [&]<class T>() {
    for (int64_t i = 0; i < count; ++i) {
      const double value = (static_cast<double>(next() % 20001) - 10000) / 64.0;
      T& element = t.data<T>()[i];
      if constexpr (std::is_same_v<T, bool>) element = next() % 2 == 0;
      else if constexpr (std::is_integral_v<T>) element = static_cast<T>(next());
      else if constexpr (std::is_floating_point_v<T>) element = static_cast<T>(value);
      else if constexpr (std::is_same_v<T, bfloat16>) element = to_bfloat16(static_cast<float>(value));
      else if constexpr (std::is_same_v<T, float16>) element = to_float16(static_cast<float>(value));
      else if constexpr (std::is_same_v<T, float8_e4m3fn>) element = to_float8_e4m3fn(static_cast<float>(value));
      else element = to_float8_e5m2(static_cast<float>(value));
    }
  });
  return t;
}

}  // namespace

std::vector<CommDigest> comm_digests(ProcessGroup& group) {
  const int ranks = group.size(), me = group.rank();
  std::vector<CommDigest> digests;
  const auto add = [&](const std::string& op, DType dtype, const std::string& reduce, int64_t elements,
                       const Tensor& output) {
    int64_t digest = static_cast<int64_t>(
        hash64(output.raw_data(), static_cast<size_t>(output.nbytes()), static_cast<uint64_t>(me)) >> 8);
    group.all_reduce_values<int64_t>({&digest, 1});
    digests.push_back({op, std::string(name_of(dtype)), reduce, elements, static_cast<uint64_t>(digest)});
  };
  for (int d = 0; d < kNumDTypes; ++d) {
    const DType dtype = static_cast<DType>(d);
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{13}, int64_t{1000}, int64_t{70'001}}) {
      for (const CollectiveDef* def : rows()) {
        if (def->outputs == comm::Given::none) continue;
        for (int k = 0; k < (def->reduces ? comm::kNumReduceKinds : 1); ++k) {
          const auto kind = static_cast<comm::ReduceKind>(k);
          if (!group.can({.kind = comm::kind_of(*def), .dtype = dtype, .reduce = kind})) continue;
          const comm::ReduceOp op =
              kind == comm::ReduceKind::premul_sum ? comm::ReduceOp::premul_sum(0.75 + me) : comm::ReduceOp(kind);
          const int64_t size = size_of(def->outputs, n, ranks);
          const Tensor out =
              def->in_place == comm::InPlace::no ? Tensor::empty({size}, dtype) : digest_input(dtype, size, me);
          const auto outputs = side_of(def->outputs, out, ranks),
                     inputs = side_of(def->inputs, digest_input(dtype, size_of(def->inputs, n, ranks), me), ranks);
          group.run(
              {.kind = comm::kind_of(*def), .outputs = outputs, .inputs = inputs, .root = ranks - 1, .reduce = op});
          add(name_in_bench(*def), dtype, def->reduces ? std::string(comm::name_of(kind)) : "", n, out);
        }
      }
    }
  }
  return digests;
}

}  // namespace tutti::bench
