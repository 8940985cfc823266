#include "tutti/comm/call_checks.h"

#include "tutti/comm/collective_def.h"
#include "tutti/core/error.h"

namespace tutti::comm::checks {

void tensor(const char* op, const char* role, const Tensor& t, Device device) {
  TUTTI_CHECK(t.defined(), "{}: the {} tensor is undefined", op, role);
  TUTTI_CHECK(t.device() == device, "{}: the {} tensor {} is on another device than the group's {}", op, role,
              describe(t), to_string(device));
}

void writable(const char* op, const char* role, const Tensor& t, Device device) {
  tensor(op, role, t, device);
  TUTTI_CHECK(!t.storage()->is_read_only(), "{}: the {} tensor {} is read-only memory and cannot be written", op, role,
              describe(t));
  for (size_t d = 0; d < t.strides().size(); ++d) {
    TUTTI_CHECK(t.strides()[d] != 0 || t.extents()[d] < 2,
                "{}: dim {} of the {} tensor {} is expanded: its elements are the same memory; clone() it", op, d, role,
                describe(t));
  }
}

void timeout(std::string_view what, std::chrono::milliseconds timeout) {
  TUTTI_CHECK(timeout.count() > 0, "{}: a timeout of {} ms; expected more than 0", what, timeout.count());
}

void root(const char* op, int root, int size) {
  TUTTI_CHECK(root >= 0 && root < size, "{}: root {} is not a rank of the group; legal: 0 to {}", op, root, size - 1);
}

void peer(const char* op, int peer, int rank, int size, bool any_allowed) {
  if (any_allowed && peer == -1) return;
  TUTTI_CHECK(peer >= 0 && peer < size, "{}: peer {} is not a rank of the group; legal: 0 to {}", op, peer, size - 1);
  TUTTI_CHECK(peer != rank, "{}: rank {} cannot exchange messages with itself", op, rank);
}

void list_length(const char* op, const char* role, size_t given, int size) {
  TUTTI_CHECK(given == static_cast<size_t>(size), "{}: {} {} tensors for a group of {} ranks; expected one per rank",
              op, given, role, size);
}

void same_dtype(const char* op, const Tensor& a, const Tensor& b) {
  TUTTI_CHECK(a.dtype() == b.dtype(), "{}: the tensors {} and {} differ in dtype", op, describe(a), describe(b));
}

void same_numel(const char* op, const char* role_a, const Tensor& a, const char* role_b, const Tensor& b) {
  TUTTI_CHECK(a.numel() == b.numel(), "{}: the {} tensor {} and the {} tensor {} differ in size: {} and {} elements",
              op, role_a, describe(a), role_b, describe(b), a.numel(), b.numel());
}

void numel_times(const char* op, const char* role_large, const Tensor& large, const char* role_small,
                 const Tensor& small, int parts) {
  TUTTI_CHECK(large.numel() == small.numel() * parts,
              "{}: the {} tensor {} has {} elements; expected {} = {} ranks times the {} of the {} tensor {}", op,
              role_large, describe(large), large.numel(), small.numel() * parts, parts, small.numel(), role_small,
              describe(small));
}

void own_slice(const char* op, const Tensor& output, const Tensor& input, int rank, int size) {
  if (!input.defined() || !output.defined() || input.storage().get() != output.storage().get()) return;
  const int64_t n = input.numel(), offset = input.offset() - output.offset();
  const bool is_slice = n > 0 && input.dtype() == output.dtype() && input.is_contiguous() && output.is_contiguous() &&
                        output.numel() == n * size && offset >= 0 && offset < n * size && offset % n == 0;
  TUTTI_CHECK(!is_slice || offset == rank * n,
              "{}: the input {} of rank {} is slice {} of the output {}, where the values of rank {} go; legal is "
              "slice {} (elements {} to {} of the "
              "output) or memory apart",
              op, describe(input), rank, offset / n, describe(output), offset / n, rank, rank * n, (rank + 1) * n);
}

void reducible(const char* op, const ReduceOp& reduce, DType dtype) {
  const std::string why = why_not_reducible(reduce.kind(), dtype);
  TUTTI_CHECK(why.empty(), "{}: {}", op, why);
}

void equal_parts(const char* op, const char* role, const Tensor& t, int size) {
  TUTTI_CHECK(t.ndim() > 0, "{}: the {} tensor {} has no dim 0 to split", op, role, describe(t));
  TUTTI_CHECK(t.extents()[0] % size == 0,
              "{}: dim 0 of the {} tensor {} does not divide into {} equal parts; give splits", op, role, describe(t),
              size);
}

std::vector<int64_t> split_bytes(const char* op, const char* role, const Tensor& t, Splits splits, int size) {
  TUTTI_CHECK(t.ndim() > 0, "{}: the {} tensor {} has no dim 0 to split", op, role, describe(t));
  const int64_t rows = t.extents()[0];
  int64_t row_bytes = itemsize(t.dtype());
  for (size_t d = 1; d < t.extents().size(); ++d) row_bytes *= t.extents()[d];
  if (splits.empty()) {
    equal_parts(op, role, t, size);
    return std::vector<int64_t>(static_cast<size_t>(size), rows / size * row_bytes);
  }
  TUTTI_CHECK(splits.size() == static_cast<size_t>(size),
              "{}: {} {} splits for a group of {} ranks; expected one per rank", op, splits.size(), role, size);
  std::vector<int64_t> bytes;
  int64_t sum = 0;
  for (const int64_t split : splits) {
    TUTTI_CHECK(split >= 0 && split <= rows, "{}: {} split {} of dim 0 with {} rows; legal: 0 to {}", op, role, split,
                rows, rows);
    sum += split;
    bytes.push_back(split * row_bytes);
  }
  TUTTI_CHECK(sum == rows, "{}: the {} splits add up to {}; dim 0 of {} has {} rows", op, role, sum, describe(t), rows);
  return bytes;
}

void split_tensor(const char* op, const char* role, const Tensor& splits, int size) {
  TUTTI_CHECK(splits.defined(), "{}: the tensor of the {} splits is undefined", op, role);
  TUTTI_CHECK(splits.dtype() == DType::i64 && splits.ndim() == 1 && splits.sizes()[0] == size,
              "{}: the {} splits are {}; expected i64 [{}], one number for each rank", op, role, describe(splits),
              size);
}

std::vector<int64_t> values_of(const Tensor& splits) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < splits.numel(); ++i) values.push_back(splits.data<int64_t>()[i * splits.strides()[0]]);
  return values;
}

void splits_within(const char* op, const char* role, const Tensor& t, const Tensor& splits) {
  TUTTI_CHECK(t.ndim() > 0, "{}: the {} tensor {} has no dim 0 to split", op, role, describe(t));
  const int64_t rows = t.extents()[0];
  int64_t sum = 0;
  for (const int64_t split : values_of(splits)) {
    TUTTI_CHECK(split >= 0 && split <= rows, "{}: {} split {} of dim 0 with {} rows; legal: 0 to {}", op, role, split,
                rows, rows);
    sum += split;
  }
  TUTTI_CHECK(sum <= rows, "{}: the {} splits add up to {}; dim 0 of {} has only {} rows", op, role, sum, describe(t),
              rows);
}

// ---- a whole call ---------------------------------------------------------------------------------------------------

namespace {

void count(const char* op, const char* role, Given given, size_t tensors, const CallPart& part) {
  switch (given) {
    case Given::none:
      TUTTI_CHECK(tensors == 0, "{}: {} {} tensors; it takes none", op, tensors, role);
      break;
    case Given::share:
    case Given::whole:
      TUTTI_CHECK(tensors == 1, "{}: {} {} tensors; it takes one", op, tensors, role);
      break;
    case Given::padded:
      TUTTI_CHECK(tensors == 2, "{}: {} {} tensors; it takes one of rows and one of splits", op, tensors, role);
      break;
    case Given::list_on_root:
      TUTTI_CHECK(part.is_root() || tensors == 0, "{}: rank {} gives {} {}s, but only root {} {} any", op,
                  part.seat.rank, tensors, role, part.call.root,
                  std::string_view(role) == "output" ? "takes" : "gives");
      if (part.is_root()) list_length(op, role, tensors, part.seat.ranks);
      break;
    case Given::list:
      list_length(op, role, tensors, part.seat.ranks);
      break;
  }
}

// The tensors of a call in place, or of one part of it, which has one.
void in_place(const char* op, const CollectiveDef& def, const CallPart& part) {
  const char* role = reads_outputs(def, part.call, part.seat.rank) ? "input" : "output";
  count(op, role, def.outputs, part.call.outputs.size(), part);
  if (writes_outputs(def, part.call, part.seat.rank)) writable(op, role, part.output(), part.seat.device);
  else tensor(op, role, part.output(), part.seat.device);
}

// The tensors of a side that hold what is moved; what comes behind them are splits.
Tensors moved(Given given, Tensors side) { return given == Given::padded ? side.first(1) : side; }

void apart(const char* op, const CollectiveDef& def, const CallPart& part) {
  const auto [outputs, inputs] = std::pair(part.call.outputs, part.call.inputs);
  count(op, "output", def.outputs, outputs.size(), part);
  count(op, "input", def.inputs, inputs.size(), part);
  for (const Tensor& input : inputs) tensor(op, "input", input, part.seat.device);
  for (const Tensor& output : outputs) writable(op, "output", output, part.seat.device);
  if (inputs.empty() && outputs.empty()) return;
  // Where a call takes a tensor and a list, the tensor says which dtype is expected.
  const bool is_input = def.inputs == Given::share || def.inputs == Given::whole || outputs.size() != 1;
  const Tensor& first = is_input ? inputs[0] : outputs[0];
  for (const Tensor& input : moved(def.inputs, inputs)) same_dtype(op, first, input);
  for (const Tensor& output : moved(def.outputs, outputs)) same_dtype(op, first, output);
}

// `op` is the call's name, where the row is that of a part.
void one(const char* op, const CollectiveDef& def, const CallPart& part) {
  if (def.in_place == InPlace::no) apart(op, def, part);
  else in_place(op, def, part);
  if (def.sizes != nullptr) def.sizes(op, part);
  if (!def.reduces) return;
  for (const Tensor& output : part.call.outputs) reducible(op, part.call.reduce, output.dtype());
}

}  // namespace

void arguments(const CollectiveDef& def, const CollectiveCall& call, const Seat& seat) {
  if (def.is_rooted) root(def.name, call.root, seat.ranks);
  if (def.each == nullptr) return one(def.name, def, {call, seat});
  const size_t parts = parts_of(def, call);
  TUTTI_CHECK(parts > 0, "{}: no tensors given", def.name);
  if (def.outputs == Given::list) {
    TUTTI_CHECK(call.output_lists.size() == parts, "{}: {} lists of outputs for {} inputs", def.name,
                call.output_lists.size(), parts);
  } else {
    TUTTI_CHECK(call.outputs.size() == parts, "{}: {} outputs for {} inputs", def.name, call.outputs.size(), parts);
  }
  for (size_t i = 0; i < parts; ++i) {
    const CollectiveCall part = part_of(def, call, i);
    one(def.name, *def.each, {part, seat});
  }
}

}  // namespace tutti::comm::checks
