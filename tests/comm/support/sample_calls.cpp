#include "tests/comm/support/sample_calls.h"

#include <numeric>
#include <ostream>

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::comm {
namespace {

using Kind = CollectiveKind;
constexpr std::chrono::milliseconds kMonitored = std::chrono::seconds(20);

class Sampler {
 public:
  Sampler(ProcessGroup& group, const SampleOptions& options)
      : group_(group), o_(options), me_(group.rank()), n_(group.size()), extra_(options.uneven ? 1 : 0) {}

  SampleCall make(Kind kind) {
    group_call(kind);
    TUTTI_CHECK(call_.make != nullptr, "no sample of {}", name_of(kind));
    return std::move(call_);
  }

 private:
  // Elements of rank `rank` when the ranks' sizes may differ.
  int64_t own(int rank) const { return o_.count + extra_ * rank; }
  Tensor in(int64_t count) {
    call_.inputs.push_back(filled(me_, {count}, o_.dtype));
    return call_.inputs.back();
  }
  Tensor out(int64_t count) {
    call_.outputs.push_back(filled(me_ + 50, {count}, o_.dtype));
    return call_.outputs.back();
  }
  template <class Count>
  std::vector<Tensor> ins(const Count& count) {
    std::vector<Tensor> list;
    for (int p = 0; p < n_; ++p) list.push_back(in(count(p)));
    return list;
  }
  template <class Count>
  std::vector<Tensor> outs(const Count& count) {
    std::vector<Tensor> list;
    for (int p = 0; p < n_; ++p) list.push_back(out(count(p)));
    return list;
  }
  bool is_root() const { return me_ == o_.root; }
  template <class Fn>
  void calls(Fn fn) { call_.make = std::move(fn); }

  void group_call(Kind kind) {
    const int64_t mine = own(me_);
    const auto each = [mine](int) { return mine; };
    const auto by_rank = [this](int p) { return own(p); };
    ProcessGroup* const g = &group_;
    const SampleOptions o = o_;
    if (kind == Kind::all_gather_v || kind == Kind::reduce_scatter_v || kind == Kind::all_to_all_v_single) extra_ = 1;
    switch (kind) {
      case Kind::broadcast: return calls([g, o, t = is_root() ? in(mine) : out(mine)] { g->broadcast(t, o.root); });
      case Kind::all_reduce: return calls([g, o, t = out(mine)] { g->all_reduce(t, o.op); });
      case Kind::all_reduce_coalesced:
        return calls([g, o, list = std::vector{out(mine), out(1), out(2 * mine)}] { g->all_reduce_coalesced(list, o.op); });
      case Kind::reduce: return calls([g, o, t = is_root() ? out(mine) : in(mine)] { g->reduce(t, o.root, o.op); });
      case Kind::all_gather: return calls([g, list = outs(by_rank), t = in(mine)] { g->all_gather(list, t); });
      case Kind::all_gather_v: return calls([g, list = outs(by_rank), t = in(own(me_))] { g->all_gather_v(list, t); });
      case Kind::all_gather_coalesced: {
        // The lengths of the second differ between ranks.
        std::vector<std::vector<Tensor>> to;
        to.push_back(outs(by_rank));
        extra_ = 1;
        to.push_back(outs(by_rank));
        return calls([g, to, from = std::vector{in(mine), in(own(me_))}] { g->all_gather_coalesced(to, from); });
      }
      case Kind::all_gather_single: return calls([g, to = out(n_ * mine), t = in(mine)] { g->all_gather_single(to, t); });
      case Kind::all_gather_single_coalesced:
        return calls([g, to = std::vector{out(n_ * mine), out(n_)}, from = std::vector{in(mine), in(1)}] {
          g->all_gather_single_coalesced(to, from);
        });
      case Kind::gather:
        return calls([g, o, list = is_root() ? outs(each) : std::vector<Tensor>(), t = in(mine)] { g->gather(list, t, o.root); });
      case Kind::scatter:
        return calls([g, o, to = out(mine), list = is_root() ? ins(each) : std::vector<Tensor>()] { g->scatter(to, list, o.root); });
      case Kind::reduce_scatter: return calls([g, o, to = out(mine), list = ins(by_rank)] { g->reduce_scatter(to, list, o.op); });
      case Kind::reduce_scatter_v:
        return calls([g, o, to = out(own(me_)), list = ins(by_rank)] { g->reduce_scatter_v(to, list, o.op); });
      case Kind::reduce_scatter_single:
        return calls([g, o, to = out(mine), t = in(n_ * mine)] { g->reduce_scatter_single(to, t, o.op); });
      case Kind::reduce_scatter_single_coalesced:
        return calls([g, o, to = std::vector{out(mine), out(1)}, from = std::vector{in(n_ * mine), in(n_)}] {
          g->reduce_scatter_single_coalesced(to, from, o.op);
        });
      case Kind::all_to_all: return calls([g, to = outs(by_rank), from = ins(each)] { g->all_to_all(to, from); });
      case Kind::all_to_all_single: return calls([g, to = out(n_ * mine), t = in(n_ * mine)] { g->all_to_all_single(to, t); });
      case Kind::all_to_all_v_single: return all_to_all_v();
      case Kind::send: case Kind::recv: return ring(kind);
      case Kind::barrier: return calls([g] { g->barrier(); });
      case Kind::monitored_barrier: return calls([g] { g->monitored_barrier(kMonitored); });
      case Kind::gather_bytes: return calls([g, o, text = bytes()] { g->gather_bytes(text, o.root); });
      case Kind::broadcast_bytes: return calls([g, o, text = bytes()] { g->broadcast_bytes(text, o.root); });
      case Kind::all_gather_bytes: return calls([g, text = bytes()] { g->all_gather_bytes(text); });
      case Kind::scatter_bytes:
        return calls([g, o, parts = std::vector<std::string>(static_cast<size_t>(n_), bytes())] { g->scatter_bytes(parts, o.root); });
    }
  }

  std::string bytes() const { return std::string(static_cast<size_t>(own(me_) * itemsize(o_.dtype)), 'x'); }

  void all_to_all_v() {
    std::vector<int64_t> sent(static_cast<size_t>(n_), own(me_)), taken;
    for (int p = 0; p < n_; ++p) taken.push_back(own(p));
    const int64_t total = std::accumulate(taken.begin(), taken.end(), int64_t{0});
    calls([g = &group_, sent, taken, to = out(total), t = in(n_ * own(me_))] { g->all_to_all_v_single(to, t, taken, sent); });
  }

  // send: as single messages; recv: as one batch.
  void ring(Kind kind) {
    const int next = (me_ + 1) % n_, previous = (me_ + n_ - 1) % n_;
    if (n_ == 1) return calls([] {});
    ProcessGroup* const g = &group_;
    if (kind == Kind::send) {
      return calls([g, next, previous, from = in(own(me_)), to = out(own(previous))] {
        const Work sent = g->isend(from, next, 3);
        g->recv(to, previous, 3);
        sent.wait();
      });
    }
    calls([g, next, previous, from = in(own(me_)), to = out(own(previous))] {
      const PointToPoint operations[] = {{PointToPoint::Kind::irecv, to, previous, 4}, {PointToPoint::Kind::isend, from, next, 4}};
      g->batch_isend_irecv(operations).wait();
    });
  }

  ProcessGroup& group_;
  const SampleOptions o_;
  const int me_, n_;
  int extra_;
  SampleCall call_;
};

}  // namespace

SampleCall sample_call(ProcessGroup& group, CollectiveKind kind, const SampleOptions& options) { return Sampler(group, options).make(kind); }

std::vector<CollectiveKind> all_kinds() {
  std::vector<CollectiveKind> kinds;
  for (int k = 0; k < kNumCollectiveKinds; ++k) kinds.push_back(static_cast<CollectiveKind>(k));
  return kinds;
}

void PrintTo(CollectiveKind kind, std::ostream* out) { *out << name_of(kind); }

bool reduces(CollectiveKind kind) {
  switch (kind) {
    case Kind::all_reduce: case Kind::all_reduce_coalesced: case Kind::reduce: case Kind::reduce_scatter:
    case Kind::reduce_scatter_v: case Kind::reduce_scatter_single: case Kind::reduce_scatter_single_coalesced:
      return true;
    default:
      return false;
  }
}

std::vector<std::string> names_of_call(CollectiveKind kind) {
  using Kind = CollectiveKind;
  switch (kind) {
    case Kind::send: case Kind::recv: return {"send #", "recv #"};
    case Kind::monitored_barrier: return {"monitored_barrier #"};
    // The sizes go first, then the bytes.
    case Kind::broadcast_bytes: return {"broadcast #"};
    case Kind::all_gather_bytes: return {"all_gather_single #", "all_gather #"};
    case Kind::gather_bytes: return {"all_gather_single #", "all_to_all_v_single #"};
    case Kind::scatter_bytes: return {"scatter #", "all_to_all_v_single #"};
    default: return {fmt::format("{} #", name_of(kind))};
  }
}

Tensor filled(int rank, const Extents& sizes, DType dtype) {
  const Tensor t = Tensor::empty(sizes, dtype);
  auto* bytes = static_cast<uint8_t*>(t.raw_data());
  // Small values: no bit pattern of them is a NaN, and a boolean stays 0 or 1.
  const int64_t values = dtype == DType::boolean ? 2 : 50;
  for (int64_t i = 0; i < t.nbytes(); ++i) bytes[i] = static_cast<uint8_t>((i + rank * 7) % values);
  return t;
}

uint64_t checksum(const std::vector<Tensor>& tensors) {
  uint64_t sum = 1;
  for (const Tensor& t : tensors) sum = hash64(t.raw_data(), static_cast<size_t>(t.nbytes()), sum);
  return sum;
}

}  // namespace tutti::comm
