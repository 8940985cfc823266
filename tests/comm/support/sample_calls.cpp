#include "tests/comm/support/sample_calls.h"

#include <numeric>
#include <ostream>

#include <fmt/format.h>

#include "tutti/comm/collective_def.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::comm {
namespace {

using Kind = CollectiveKind;
constexpr std::chrono::milliseconds kMonitored = std::chrono::seconds(20);

class Sampler {
 public:
  Sampler(ProcessGroup& group, const CollectiveDef& def, const SampleOptions& options)
      : group_(group),
        def_(def),
        o_(options),
        me_(group.rank()),
        n_(group.size()),
        extra_(options.uneven || def.uneven_of != nullptr || def.has_splits ? 1 : 0) {}

  SampleCall make(Kind kind) {
    if (def_.is_message) ring(kind == Kind::recv);
    else if (!def_.has_exchanges()) made_of_others(kind);
    else arguments(kind);
    TUTTI_CHECK(call_.make != nullptr, "no sample of {}", def_.name);
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
  bool is_root() const { return me_ == o_.root; }

  // `scale` of 0 stands for tensors of one element.
  void add_part(SampleArguments& a, int64_t scale) {
    const auto size = [&](int rank) {
      return scale == 0 ? 1 + extra_ * rank * (def_.evenness == Evenness::equal ? 0 : 1) : scale * own(rank);
    };
    if (def_.in_place != InPlace::no) {
      const bool is_read_only = !writes_outputs(def_, {.kind = kind_of(def_), .root = o_.root}, me_);
      a.outputs.push_back(is_read_only ? in(size(me_)) : out(size(me_)));
      return;
    }
    // A list on which all ranks agree has the sizes of its ranks, as has a list of what the ranks send.
    const auto add = [&](Given given, std::vector<Tensor>& to, bool by_rank, const auto& make) {
      if (given == Given::share) to.push_back(make(size(me_)));
      if (given == Given::whole) to.push_back(make(n_ * size(me_)));
      if (given == Given::list || (given == Given::list_on_root && is_root())) {
        for (int p = 0; p < n_; ++p) to.push_back(make(size(by_rank ? p : me_)));
      }
      if (given == Given::padded) {
        int64_t rows = 0;
        for (int p = 0; p < n_; ++p) rows += size(by_rank ? p : me_);
        to.push_back(make(rows));
        to.push_back(Tensor::of(std::vector<int64_t>(static_cast<size_t>(n_), size(me_))));
        (by_rank ? call_.outputs : call_.inputs).push_back(to.back());
      }
    };
    std::vector<Tensor> list;
    const bool lists = def_.each != nullptr && def_.outputs == Given::list;
    add(def_.outputs, lists ? list : a.outputs, def_.evenness != Evenness::equal,
        [&](int64_t count) { return out(count); });
    add(def_.inputs, a.inputs, def_.evenness == Evenness::listed, [&](int64_t count) { return in(count); });
    if (lists) a.output_lists.push_back(std::move(list));
  }

  void arguments(Kind kind) {
    auto a = std::make_shared<SampleArguments>();
    if (def_.has_splits) {
      a->input_splits.assign(static_cast<size_t>(n_), own(me_));
      for (int p = 0; p < n_; ++p) a->output_splits.push_back(own(p));
      a->outputs.push_back(out(std::accumulate(a->output_splits.begin(), a->output_splits.end(), int64_t{0})));
      a->inputs.push_back(in(n_ * own(me_)));
    } else {
      add_part(*a, 1);
    }
    if (def_.each != nullptr) {
      if (def_.evenness == Evenness::listed) extra_ = 1;  // the lengths of further parts differ between ranks
      add_part(*a, 0);
      add_part(*a, 2);
    }
    call_.arguments = a;
    call_.make = [g = &group_, a, kind, o = o_] {
      g->run({.kind = kind,
              .outputs = a->outputs,
              .inputs = a->inputs,
              .root = o.root,
              .reduce = o.op,
              .output_splits = a->output_splits,
              .input_splits = a->input_splits,
              .output_lists = a->output_lists});
    };
  }

  void made_of_others(Kind kind) {
    const SampleOptions o = o_;
    const std::string text(static_cast<size_t>(own(me_) * itemsize(o.dtype)), 'x');
    const std::pair<Kind, std::function<void()>> calls[] = {
        {Kind::monitored_barrier, [g = &group_] { g->monitored_barrier(kMonitored); }},
        {Kind::gather_bytes, [g = &group_, o, text] { g->gather_bytes(text, o.root); }},
        {Kind::broadcast_bytes, [g = &group_, o, text] { g->broadcast_bytes(text, o.root); }},
        {Kind::all_gather_bytes, [g = &group_, text] { g->all_gather_bytes(text); }},
        {Kind::scatter_bytes,
         [g = &group_, o, parts = std::vector(static_cast<size_t>(n_), text)] { g->scatter_bytes(parts, o.root); }},
    };
    for (const auto& [of, call] : calls) {
      if (of == kind) call_.make = call;
    }
  }

  void ring(bool as_batch) {
    const int next = (me_ + 1) % n_, previous = (me_ + n_ - 1) % n_;
    if (n_ == 1) {
      call_.make = [] {};
      return;
    }
    ProcessGroup* const g = &group_;
    if (!as_batch) {
      call_.make = [g, next, previous, from = in(own(me_)), to = out(own(previous))] {
        const Work sent = g->isend(from, next, 3);
        g->recv(to, previous, 3);
        sent.wait();
      };
      return;
    }
    call_.make = [g, next, previous, from = in(own(me_)), to = out(own(previous))] {
      const PointToPoint operations[] = {{PointToPoint::Kind::irecv, to, previous, 4},
                                         {PointToPoint::Kind::isend, from, next, 4}};
      g->batch_isend_irecv(operations).wait();
    };
  }

  ProcessGroup& group_;
  const CollectiveDef& def_;
  const SampleOptions o_;
  const int me_, n_;
  int extra_;
  SampleCall call_;
};

}  // namespace

SampleCall sample_call(ProcessGroup& group, CollectiveKind kind, const SampleOptions& options) {
  return Sampler(group, definition(kind), options).make(kind);
}

std::vector<CollectiveKind> all_kinds() {
  std::vector<CollectiveKind> kinds;
  for (int k = 0; k < kNumCollectiveKinds; ++k) kinds.push_back(static_cast<CollectiveKind>(k));
  return kinds;
}

void PrintTo(CollectiveKind kind, std::ostream* out) { *out << name_of(kind); }

bool reduces(CollectiveKind kind) { return definition(kind).reduces; }

std::vector<std::string> names_of_call(CollectiveKind kind) {
  const CollectiveDef& def = definition(kind);
  if (def.is_message) return {"send #", "recv #"};
  std::vector<std::string> names;
  for (const char* part : def.made_of) {
    if (part != nullptr) names.push_back(fmt::format("{} #", part));
  }
  if (names.empty()) names.push_back(fmt::format("{} #", def.name));
  return names;
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
