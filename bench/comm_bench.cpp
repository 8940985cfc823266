#include "bench/comm_bench.h"

#include <algorithm>
#include <chrono>
#include <functional>

#include "tutti/comm/symm/allocation.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::bench {
namespace {

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

float sum_over(int ranks, int64_t i) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += value_of(r, i);
  return sum;
}

void set_up(ProcessGroup& group, const CommCase& what, Setup& s) {
  const int ranks = group.size(), me = group.rank();
  const int64_t count = std::max<int64_t>(1, what.bytes / 4), each = std::max<int64_t>(1, count / ranks);
  const auto make = [&](int64_t n) { return buffer(group, what, s, n); };
  if (what.op == "barrier") {
    s.call = [&group] { group.barrier(); };
  } else if (what.op == "all_reduce" || what.op == "reduce" || what.op == "broadcast") {
    s.output = make(count);
    if (what.op == "all_reduce") s.call = [&group, t = s.output] { group.all_reduce(t); };
    if (what.op == "reduce") s.call = [&group, t = s.output] { group.reduce(t, 0); };
    if (what.op == "broadcast") s.call = [&group, t = s.output] { group.broadcast(t, 0); };
    if (what.op == "all_reduce") s.expected = [ranks](int, int64_t i) { return sum_over(ranks, i); };
    if (what.op == "reduce") s.expected = [ranks](int rank, int64_t i) { return rank == 0 ? sum_over(ranks, i) : value_of(rank, i); };
    if (what.op == "broadcast") s.expected = [](int, int64_t i) { return value_of(0, i); };
  } else if (what.op == "all_gather") {
    s.input = make(each), s.output = make(each * ranks);
    s.call = [&group, in = s.input, out = s.output] { group.all_gather_single(out, in); };
    s.expected = [each](int, int64_t i) { return value_of(static_cast<int>(i / each), i % each); };
  } else if (what.op == "reduce_scatter") {
    s.input = make(each * ranks), s.output = make(each);
    s.call = [&group, in = s.input, out = s.output] { group.reduce_scatter_single(out, in); };
    s.expected = [ranks, each](int rank, int64_t i) { return sum_over(ranks, rank * each + i); };
  } else if (what.op == "all_to_all") {
    s.input = make(each * ranks), s.output = make(each * ranks);
    s.call = [&group, in = s.input, out = s.output] { group.all_to_all_single(out, in); };
    s.expected = [each](int rank, int64_t i) { return value_of(static_cast<int>(i / each), rank * each + i % each); };
  } else {
    throw UsageError(unknown_name_message("collective", what.op, comm_ops()));
  }
  fill(s.output.defined() ? s.output : Tensor::empty({0}), me);
  if (s.input.defined()) fill(s.input, me);
}

double bus_factor(const std::string& op, int ranks) {
  const double w = ranks;
  if (op == "all_reduce") return 2 * (w - 1) / w;
  if (op == "all_gather" || op == "reduce_scatter" || op == "all_to_all") return (w - 1) / w;
  return 1;
}

}  // namespace

const std::vector<std::string>& comm_ops() {
  static const std::vector<std::string> ops = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "barrier"};
  return ops;
}

CommResult run_comm_case(ProcessGroup& group, const CommCase& what) {
  Setup s;
  set_up(group, what, s);
  const int64_t moved = std::max(s.input.defined() ? s.input.nbytes() : 0, s.output.defined() ? s.output.nbytes() : 0);
  CommResult result{.what = what, .bytes = moved, .ranks = group.size(), .transport = group.backend(DeviceKind::cpu).name()};
  s.call();
  int64_t wrong = 0;
  for (int64_t i = 0; s.expected && i < s.output.numel(); ++i) wrong += s.output.data<float>()[i] != s.expected(group.rank(), i);
  // Sums of sums would grow without end; zeros stay, and cost the same.
  if (what.op == "all_reduce" || what.op == "reduce") std::fill_n(s.output.data<float>(), s.output.numel(), 0.0f);

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
  result.busbw_gbs = result.algbw_gbs * bus_factor(what.op, group.size());
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
  const auto add = [&](const std::string& op, DType dtype, const std::string& reduce, int64_t elements, const Tensor& output) {
    int64_t digest = static_cast<int64_t>(hash64(output.raw_data(), static_cast<size_t>(output.nbytes()), static_cast<uint64_t>(me)) >> 8);
    group.all_reduce_values<int64_t>({&digest, 1});
    digests.push_back({op, std::string(name_of(dtype)), reduce, elements, static_cast<uint64_t>(digest)});
  };
  for (int d = 0; d < kNumDTypes; ++d) {
    const DType dtype = static_cast<DType>(d);
    for (const int64_t each : {int64_t{0}, int64_t{1}, int64_t{13}, int64_t{1000}, int64_t{70'001}}) {
      const int64_t all = each * ranks;
      Tensor out = Tensor::empty({all}, dtype);
      group.all_gather_single(out, digest_input(dtype, each, me));
      add("all_gather", dtype, "", each, out);
      group.all_to_all_single(out, digest_input(dtype, all, me));
      add("all_to_all", dtype, "", each, out);
      out = digest_input(dtype, each, me);
      group.broadcast(out, ranks - 1);
      add("broadcast", dtype, "", each, out);
      for (int k = 0; k < comm::kNumReduceKinds; ++k) {
        const comm::ReduceKind kind = static_cast<comm::ReduceKind>(k);
        if (!group.can({.kind = comm::CollectiveKind::all_reduce, .dtype = dtype, .reduce = kind})) continue;
        const comm::ReduceOp op = kind == comm::ReduceKind::premul_sum ? comm::ReduceOp::premul_sum(0.75 + me) : comm::ReduceOp(kind);
        const std::string reduce(comm::name_of(kind));
        out = digest_input(dtype, each, me);
        group.all_reduce(out, op);
        add("all_reduce", dtype, reduce, each, out);
        out = Tensor::empty({each}, dtype);
        group.reduce_scatter_single(out, digest_input(dtype, all, me), op);
        add("reduce_scatter", dtype, reduce, each, out);
        out = digest_input(dtype, each, me);
        group.reduce(out, 0, op);
        add("reduce", dtype, reduce, each, out);
      }
    }
  }
  return digests;
}

}  // namespace tutti::bench
