// The rows that NCCL has a call for are in a table here. Others that only move data are groups of its sends and
// receives, by the row's own plan. Data is moved as bytes. Several tensors of one call are one group of NCCL: one
// launch.
#include "tutti/comm/nccl/nccl_calls.h"

#include <algorithm>

#include "tutti/comm/exchanges/move.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using Launch = NcclCommunicator::Launch;

constexpr int kHostScalar = 1;  // ncclScalarHostImmediate

struct Native {
  const CollectiveDef* def;
  void (*start)(const CallPart& part, const Launch& on, NcclReduction& reduction, void* word);
};

size_t count_of(const Tensor& t) { return static_cast<size_t>(t.numel()); }
size_t bytes_of(const Tensor& t) { return static_cast<size_t>(t.nbytes()); }

void broadcast_from(const Launch& on, int root, const void* data, const Tensor& to) {
  if (to.numel() == 0) return;
  on.check(on.owner.nccl().broadcast(data, to.raw_data(), bytes_of(to), NcclApi::kU8, root, on.comm, on.stream),
           "ncclBroadcast");
}

// Only the memory of the root is written.
void reduce_to(const Launch& on, int root, const Tensor& from, void* to, NcclReduction& reduction) {
  if (from.numel() == 0) return;
  on.check(on.owner.nccl().reduce(from.raw_data(), to, count_of(from), nccl_type(from.dtype()),
                                  reduction.op(from.dtype()), root, on.comm, on.stream),
           "ncclReduce");
}

const Native kNatives[] = {
    {&collective_rows::barrier,
     [](const CallPart&, const Launch& on, NcclReduction&, void* word) {
       on.check(on.owner.nccl().all_reduce(word, word, 1, NcclApi::kI32, NcclApi::kMax, on.comm, on.stream),
                "ncclAllReduce");
     }},
    {&collective_rows::broadcast,
     [](const CallPart& part, const Launch& on, NcclReduction&, void*) {
       broadcast_from(on, part.call.root, part.output().raw_data(), part.output());
     }},
    // Sizes may differ from rank to rank: each rank's part is a broadcast from it.
    {&collective_rows::all_gather,
     [](const CallPart& part, const Launch& on, NcclReduction&, void*) {
       for (int p = 0; p < part.seat.ranks; ++p) {
         const Tensor& to = part.output(static_cast<size_t>(p));
         broadcast_from(on, p, p == part.seat.rank ? part.input().raw_data() : to.raw_data(), to);
       }
     }},
    {&collective_rows::all_gather_single,
     [](const CallPart& part, const Launch& on, NcclReduction&, void*) {
       if (part.input().numel() == 0) return;
       on.check(on.owner.nccl().all_gather(part.input().raw_data(), part.output().raw_data(), bytes_of(part.input()),
                                           NcclApi::kU8, on.comm, on.stream),
                "ncclAllGather");
     }},
    {&collective_rows::all_reduce,
     [](const CallPart& part, const Launch& on, NcclReduction& reduction, void*) {
       const Tensor& t = part.output();
       if (t.numel() == 0) return;
       on.check(on.owner.nccl().all_reduce(t.raw_data(), t.raw_data(), count_of(t), nccl_type(t.dtype()),
                                           reduction.op(t.dtype()), on.comm, on.stream),
                "ncclAllReduce");
     }},
    {&collective_rows::reduce,
     [](const CallPart& part, const Launch& on, NcclReduction& reduction, void*) {
       reduce_to(on, part.call.root, part.output(), part.is_root() ? part.output().raw_data() : nullptr, reduction);
     }},
    // Lists may be uneven: each rank's part is a reduction to that rank.
    {&collective_rows::reduce_scatter,
     [](const CallPart& part, const Launch& on, NcclReduction& reduction, void*) {
       for (int p = 0; p < part.seat.ranks; ++p) {
         reduce_to(on, p, part.input(static_cast<size_t>(p)), p == part.seat.rank ? part.output().raw_data() : nullptr,
                   reduction);
       }
     }},
    {&collective_rows::reduce_scatter_single,
     [](const CallPart& part, const Launch& on, NcclReduction& reduction, void*) {
       const Tensor& to = part.output();
       if (to.numel() == 0) return;
       on.check(on.owner.nccl().reduce_scatter(part.input().raw_data(), to.raw_data(), count_of(to),
                                               nccl_type(to.dtype()), reduction.op(to.dtype()), on.comm, on.stream),
                "ncclReduceScatter");
     }},
};

const Native* native_of(const CollectiveDef& def) {
  const auto found =
      std::find_if(std::begin(kNatives), std::end(kNatives), [&](const Native& n) { return n.def == &def; });
  return found == std::end(kNatives) ? nullptr : found;
}

}  // namespace

NcclReduction::~NcclReduction() {
  // NCCL keeps an op alive for the calls that use it.
  for (const auto& [dtype, op] : made_) on_.owner.nccl().red_op_destroy(op, on_.comm);
}

int NcclReduction::op(DType dtype) {
  if (reduce_.kind() != ReduceKind::premul_sum) return nccl_op(reduce_.kind(), dtype);
  for (const auto& [made_for, op] : made_) {
    if (made_for == dtype) return op;
  }
  alignas(8) char factor[8] = {};
  store_from_double(factor, dtype, reduce_.factor());
  int op = 0;
  on_.check(on_.owner.nccl().red_op_create_premul_sum(&op, factor, nccl_type(dtype), kHostScalar, on_.comm),
            "ncclRedOpCreatePreMulSum");
  made_.push_back({dtype, op});
  return op;
}

std::string why_not_on_gpus(const CollectiveDef& def) {
  if (def.uneven_of != nullptr) return why_not_on_gpus(*def.uneven_of);
  if (def.each != nullptr) return why_not_on_gpus(*def.each);
  if (def.is_message || def.move != nullptr || native_of(def) != nullptr) return "";
  if (def.inputs == Given::padded)
    return fmt::format("NCCL has no call for {}; exchange the splits and call all_to_all_v_single", def.name);
  if (def.has_exchanges())
    return fmt::format("NCCL has no call for {}; move the values with all_gather_single and reduce them", def.name);
  return fmt::format("NCCL moves the memory of a GPU; {} is for a backend of the host", def.name);
}

void launch_nccl(const CollectiveDef& def, const CallPart& part, const Launch& on, NcclReduction& reduction,
                 void* word) {
  if (const Native* native = native_of(def)) return native->start(part, on, reduction, word);
  Move plan;
  plan.begin({}, part.seat.rank, part.seat.ranks);
  def.move(plan, part);
  for (int p = 0; p < part.seat.ranks; ++p) {
    const ConstBlock offer = plan.offered_to(static_cast<size_t>(p));
    const std::span<std::byte> take = plan.taken_from(static_cast<size_t>(p));
    nccl_send(on, offer.data, offer.bytes, p);
    nccl_recv(on, take.data(), static_cast<int64_t>(take.size()), p);
  }
}

void nccl_send(const Launch& on, const void* data, int64_t bytes, int peer) {
  if (bytes == 0) return;
  on.check(on.owner.nccl().send(data, static_cast<size_t>(bytes), NcclApi::kU8, peer, on.comm, on.stream), "ncclSend");
}

void nccl_recv(const Launch& on, void* data, int64_t bytes, int peer) {
  if (bytes == 0) return;
  on.check(on.owner.nccl().recv(data, static_cast<size_t>(bytes), NcclApi::kU8, peer, on.comm, on.stream), "ncclRecv");
}

}  // namespace tutti::comm
