#include "tutti/parallel/expert_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tutti/comm/functional/op_words.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/core/error.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/ops/engine/op_rooms.h"
#include "tutti/ops/grouped/groups.h"
#include "tutti/ops/indexing/indices.h"
#include "tutti/parallel/dispatch_counts.h"
#include "tutti/parallel/row_map.h"
#include "tutti/parallel/token_places.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/thread_pool.h"
#include "tutti/runtime/trace/exchange_meter.h"
#include "tutti/symm/rendezvous.h"

namespace tutti::parallel::expert_rows {
namespace {

extern const OpDef kStoreTokens, kPublishTokens, kStoreAtExperts, kStoreAtTokens, kMultiplyPublished,
    kMultiplyPublishedTransposed;

struct ExchangeAttrs {
  comm::functional::GroupRef group;
  int64_t max_tokens = 0, stride = 0, grain = 1, slots_per_token = 1, rows = 0;
  bool poisons = false;
  DType out_dtype = DType::f32;
  static constexpr auto fields() {
    return field_list(
        field::group<&ExchangeAttrs::group>("group"), field::number<&ExchangeAttrs::max_tokens>("max_tokens"),
        field::number<&ExchangeAttrs::stride>("stride"), field::number<&ExchangeAttrs::grain>("grain"),
        field::number<&ExchangeAttrs::slots_per_token>("slots_per_token"), field::number<&ExchangeAttrs::rows>("rows"),
        field::number<&ExchangeAttrs::poisons>("poisons"), field::output_dtype<&ExchangeAttrs::out_dtype>("out_dtype"));
  }
};
const ExchangeAttrs& attrs_of(const OpCall& call) { return call.attrs.as<ExchangeAttrs>(); }
Attrs attrs_for(const Exchange& e, int64_t rows = 0, DType out = DType::f32) {
  return Attrs::of(ExchangeAttrs{e.group, e.max_tokens, e.stride, e.grain, e.slots_per_token, rows, e.poisons, out});
}

// ---- what the kernels read
// ----------------------------------------------------------------------------------------------------------

constexpr int64_t kRowsAtOnce = 16;

// A tensor in symmetric memory, with those of the other ranks.
class Shared {
 public:
  Shared(const OpCall& call, const std::shared_ptr<comm::ProcessGroup>& group, const Tensor& own)
      : handle_(comm::symm::known_handle(own, comm::symm_group(*group))), timeout_(group->timeout()) {
    TUTTI_CHECK(handle_ != nullptr,
                "{}: the ranks of group '{}' have not met for the buffer {}; take buffers of an ExpertMemory",
                call.op.name, group->name(), describe(own));
  }
  template <class T = std::byte>
  T* at(int rank) const {
    return reinterpret_cast<T*>(handle_->data(rank));
  }
  void barrier() const {
    handle_->barrier(0, timeout_);
    ++dispatch_counts().barriers;
  }

 private:
  std::shared_ptr<comm::symm::SymmHandle> handle_;
  std::chrono::milliseconds timeout_;
};

// The capacity is what the list has room for.
Lists lists_of(const OpCall& call, int64_t ranks) {
  Lists lists{.experts = call[6].numel(),
              .ranks = ranks,
              .capacity = 0,
              .slots = attrs_of(call).max_tokens * attrs_of(call).slots_per_token};
  lists.capacity = call[1].numel() - lists.size();
  TUTTI_CHECK(lists.capacity >= 0 && call[5].numel() <= lists.slots,
              "{}: lists of {} numbers for {} slots of at most {} on each of {} ranks with {} experts in all",
              call.op.name, call[1].numel(), call[5].numel(), lists.slots, ranks, lists.experts);
  return lists;
}

int64_t row_bytes_of(const Tensor& t) { return t.extents()[1] * itemsize(t.dtype()); }
// All bits set are a NaN in every float dtype.
void poison(const Tensor& t) {
  if (t.numel() > 0) std::memset(t.raw_data(), 0xff, static_cast<size_t>(t.nbytes()));
}

void copy(std::byte* to, const std::byte* from, int64_t nbytes) {
  if (nbytes > 0) std::memcpy(to, from, static_cast<size_t>(nbytes));
}

void count_move(int64_t bytes) {
  ++dispatch_counts().moves;
  dispatch_counts().moved_bytes += bytes;
  RankContext::current().sent_bytes += bytes;
}

// ---- from tokens to experts
// ---------------------------------------------------------------------------------------------------------

// What both ways to bring tokens to experts begin with: all ranks tell each other their counts and grains, and that
// nobody reads any more what they are about to write.
struct Meeting {
  const std::shared_ptr<comm::ProcessGroup> group;
  const int rank, ranks;
  const Tensor order;  // dense
  const Shared target, list, mailbox;
  const Lists parts;
  int64_t* const own_list;
  std::vector<int64_t> counts;

  Meeting(const OpCall& call, bool is_read_by_others)
      : group(attrs_of(call).group.resolve(call.op.name)),
        rank(group->rank()),
        ranks(group->size()),
        order(to_contiguous(call[5])),
        target(call, group, call[0]),
        list(call, group, call[1]),
        mailbox(call, group, call[3]),
        parts(lists_of(call, ranks)),
        own_list(list.at<int64_t>(rank)) {
    if (attrs_of(call).poisons) {
      if (!is_read_by_others) poison(call[0]);
      poison(call[2]);
      std::fill_n(own_list, parts.size(), -1);
    }
    const Tensor own = to_contiguous(call[6]);
    const int64_t letter = parts.experts + 1;
    for (int r = 0; r < ranks; ++r) {
      int64_t* const here = mailbox.at<int64_t>(r) + rank * letter;
      std::copy_n(own.data<int64_t>(), parts.experts, here);
      here[parts.experts] = attrs_of(call).grain;
    }
    mailbox.barrier();
    const int64_t* const all = mailbox.at<int64_t>(rank);
    check_grains(call, all, letter);
    for (int r = 0; r < ranks; ++r) counts.insert(counts.end(), all + r * letter, all + r * letter + parts.experts);
    if (attrs_of(call).poisons && is_read_by_others) poison(call[0]);
    std::copy(counts.begin(), counts.end(), own_list + parts.counts_at());
  }
  // All ranks see the same letters, so all of them throw, and nobody writes new ones before.
  void check_grains(const OpCall& call, const int64_t* all, int64_t letter) const {
    std::vector<int64_t> grains;
    for (int r = 0; r < ranks; ++r) grains.push_back(all[r * letter + parts.experts]);
    const std::string fault = TokenPlaces::differing_grains(grains);
    if (fault.empty()) return;
    mailbox.barrier();
    throw UsageError(fmt::format("{}: {}", call.op.name, fault));
  }
  // Where the rows of each own expert end.
  void write_ends(const RowMap& map) const {
    for (int64_t e = 0; e < map.own_experts(); ++e) {
      const int64_t expert = rank * map.own_experts() + e;
      own_list[e] = map.at_expert(ranks - 1, expert) + map.count(ranks - 1, expert);
    }
  }
};

void infer_tokens(const OpCall& call, OutputMetas& out) {
  for (size_t i = 0; i < 4; ++i) out.add(call[i].dtype(), call[i].sizes());
}

void store_tokens_kernel(const OpCall& call, std::span<const Tensor>) {
  const ExchangeSpan span;
  const Meeting m(call, false);
  const RowMap map(m.counts, m.ranks, m.parts.capacity);
  m.write_ends(map);
  const Tensor x = to_contiguous(call[4]);
  const auto* from = static_cast<const std::byte*>(x.raw_data());
  const int64_t nbytes = row_bytes_of(x), slots_per_token = attrs_of(call).slots_per_token,
                stride = attrs_of(call).stride, first_position = m.rank * stride;
  const PlacesOfTokens places(x.extents()[0], stride, attrs_of(call).grain);
  int64_t sent = 0;
  for (int64_t expert = 0; expert < map.experts(); ++expert) {
    const int to = map.rank_of(expert);
    std::byte* const rows = m.target.at(to) + map.at_expert(m.rank, expert) * nbytes;
    int64_t* const positions = m.list.at<int64_t>(to) + m.parts.positions_at() + map.at_expert(m.rank, expert);
    const int64_t* const slots = m.order.data<int64_t>() + map.at_source(m.rank, expert);
    ThreadPool::current().parallel_for(map.count(m.rank, expert), kRowsAtOnce, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t token = slots[i] / slots_per_token;
        copy(rows + i * nbytes, from + token * nbytes, nbytes);
        positions[i] = first_position + places[token];
      }
    });
    if (to != m.rank) sent += map.count(m.rank, expert) * (nbytes + itemsize(DType::i64));
  }
  count_move(sent);
  m.target.barrier();
}

void publish_tokens_kernel(const OpCall& call, std::span<const Tensor>) {
  const ExchangeSpan span;
  const Meeting m(call, true);
  const RowMap map(m.counts, m.ranks, m.parts.capacity);
  m.write_ends(map);
  const Tensor x = to_contiguous(call[4]);
  copy(m.target.at(m.rank), static_cast<const std::byte*>(x.raw_data()), x.nbytes());
  const PlacesOfTokens places(x.extents()[0], attrs_of(call).stride, attrs_of(call).grain);
  for (int64_t i = 0; i < m.order.numel(); ++i)
    m.own_list[m.parts.places_at() + i] = places[m.order.data<int64_t>()[i] / attrs_of(call).slots_per_token];
  m.target.barrier();
  int64_t* const positions = m.own_list + m.parts.positions_at();
  for (int64_t expert = m.rank * map.own_experts(); expert < (m.rank + 1) * map.own_experts(); ++expert) {
    for (int s = 0; s < m.ranks; ++s) {
      const int64_t* const places_of_rows = m.list.at<int64_t>(s) + m.parts.places_at() + map.at_source(s, expert);
      for (int64_t i = 0; i < map.count(s, expert); ++i)
        positions[map.at_expert(s, expert) + i] = s * attrs_of(call).stride + places_of_rows[i];
    }
  }
  count_move(0);
}

// ---- rows that already stand by expert
// ------------------------------------------------------------------------------------------------

void infer_rows(const OpCall& call, OutputMetas& out) {
  for (size_t i = 0; i < 2; ++i) out.add(call[i].dtype(), call[i].sizes());
}

// visit(map, rank, ranks, move) calls move(to, row there, row here, count) for each segment of which this rank has the
// rows.
template <class Visit>
void move_rows(const OpCall& call, const Visit& visit) {
  const ExchangeSpan span;
  const std::shared_ptr<comm::ProcessGroup> group = attrs_of(call).group.resolve(call.op.name);
  const Shared target(call, group, call[0]);
  const Tensor rows = to_contiguous(call[2]), counts = to_contiguous(call[3]);
  const int64_t nbytes = row_bytes_of(rows);
  TUTTI_CHECK(rows.dtype() == call[0].dtype() && nbytes == row_bytes_of(call[0]),
              "{}: rows {} for a buffer {}; expected the same dtype and size of a row", call.op.name, describe(rows),
              describe(call[0]));
  if (attrs_of(call).poisons) poison(call[1]);
  const RowMap map({counts.data<int64_t>(), static_cast<size_t>(counts.numel())}, group->size(), INT64_MAX);
  int64_t sent = 0;
  visit(map, group->rank(), group->size(), [&](int to, int64_t row_there, int64_t row_here, int64_t count) {
    std::byte* const there = target.at(to) + row_there * nbytes;
    const std::byte* const here = static_cast<const std::byte*>(rows.raw_data()) + row_here * nbytes;
    ThreadPool::current().parallel_for(count, kRowsAtOnce, [&](int64_t begin, int64_t end) {
      copy(there + begin * nbytes, here + begin * nbytes, (end - begin) * nbytes);
    });
    if (to != group->rank()) sent += count * nbytes;
  });
  count_move(sent);
  target.barrier();
}

void store_at_experts_kernel(const OpCall& call, std::span<const Tensor>) {
  move_rows(call, [](const RowMap& map, int rank, int, const auto& move) {
    for (int64_t x = 0; x < map.experts(); ++x)
      move(map.rank_of(x), map.at_expert(rank, x), map.at_source(rank, x), map.count(rank, x));
  });
}

void store_at_tokens_kernel(const OpCall& call, std::span<const Tensor>) {
  move_rows(call, [](const RowMap& map, int rank, int ranks, const auto& move) {
    for (int64_t x = rank * map.own_experts(); x < (rank + 1) * map.own_experts(); ++x) {
      for (int s = 0; s < ranks; ++s) move(s, map.at_source(s, x), map.at_expert(s, x), map.count(s, x));
    }
  });
}

// ---- products of rows that stay where they are
// -----------------------------------------------------------------------------------------

// Rows of A, or of its transpose, out of the tokens of all ranks.
class PublishedRows {
 public:
  PublishedRows(const OpCall& call, bool transposed)
      : transposed_(transposed),
        group_(attrs_of(call).group.resolve(call.op.name)),
        stride_(attrs_of(call).stride),
        grain_(attrs_of(call).grain),
        item_(itemsize(call[0].dtype())),
        row_bytes_(row_bytes_of(call[0])),
        positions_(to_contiguous(call[1])) {
    const Shared tokens(call, group_, call[0]);
    const Tensor counts = to_contiguous(call[4]);
    const int64_t experts = counts.numel() / group_->size();
    for (int r = 0; r < group_->size(); ++r) {
      bases_.push_back(tokens.at(r));
      const int64_t* const of_rank = counts.data<int64_t>() + r * experts;
      const int64_t own = std::accumulate(of_rank, of_rank + experts, int64_t{0}) / attrs_of(call).slots_per_token,
                    ranges = (own + grain_ - 1) / grain_, room = stride_ / grain_;
      first_tokens_.resize(static_cast<size_t>((r + 1) * room));
      int64_t first = 0;
      for (const int64_t range : TokenPlaces::ranges_of_places(ranges, room))
        first_tokens_[static_cast<size_t>(r * room + range)] = grain_ * first++;
    }
  }

  // The block of the product of rows that begin at `begin`.
  void produce(int64_t begin, const codegen::GemmOperandBlock& block) const {
    const int64_t rows = transposed_ ? block.length : block.rows, features = transposed_ ? block.rows : block.length;
    const int64_t first_row = begin + (transposed_ ? block.first_k : block.first_row),
                  first_feature = transposed_ ? block.first_row : block.first_k;
    const int64_t row_stride = (transposed_ ? block.column_stride : block.row_stride) * item_,
                  feature_stride = transposed_ ? block.row_stride : block.column_stride;
    auto* to = static_cast<std::byte*>(block.data);
    for (int64_t i = 0; i < rows; ++i, to += row_stride) {
      const int64_t position = positions_.data<int64_t>()[first_row + i];
      const int64_t token = first_tokens_[static_cast<size_t>(position / grain_)] + position % grain_;
      const std::byte* from =
          bases_[static_cast<size_t>(position / stride_)] + token * row_bytes_ + first_feature * item_;
      if (feature_stride == 1) copy(to, from, features * item_);
      else
        for (int64_t d = 0; d < features; ++d) copy(to + d * feature_stride * item_, from + d * item_, item_);
    }
  }

  int64_t bytes_of_others(int64_t rows) const {
    int64_t bytes = 0;
    for (int64_t i = 0; i < rows; ++i)
      bytes += positions_.data<int64_t>()[i] / stride_ == group_->rank() ? 0 : row_bytes_;
    return bytes;
  }

 private:
  const bool transposed_;
  const std::shared_ptr<comm::ProcessGroup> group_;
  const int64_t stride_, grain_, item_, row_bytes_;
  const Tensor positions_;
  std::vector<const std::byte*> bases_;
  std::vector<int64_t> first_tokens_;  // of the range that stands at each range of places, over all ranks
};

// Inputs: tokens, positions, ends, w or g, counts. The grouped product sees an operand of which only sizes and strides
// count.
void multiply(const OpCall& call, const Tensor& out, bool transposed) {
  const PublishedRows rows(call, transposed);
  const int64_t R = attrs_of(call).rows, D = call[0].extents()[1];
  const StorageRef nothing =
      StorageRef::adopt(Storage::wrap(call[0].raw_data(), R * D * itemsize(call[0].dtype()), kCpu, [] {}));
  const Tensor a = transposed ? Tensor::over(nothing, {D, R}, {1, D}, 0, call[0].dtype())
                              : Tensor::over(nothing, {R, D}, {D, 1}, 0, call[0].dtype());
  const Tensor inputs[] = {a, call[3], call[2], call[1]};
  const auto produce = [&](int64_t begin, const codegen::GemmOperandBlock& block) { rows.produce(begin, block); };
  const grouped::RowProducer producer(produce);
  grouped::multiply_groups(inputs, attrs_of(call).stride * attrs_of(call).group.ranks, out, &producer);
  const std::vector<int64_t> ends = facets::dense_indices(call[2]);
  count_move(rows.bytes_of_others(ends.empty() ? 0 : ends.back()));
}

void infer_multiply(const OpCall& call, OutputMetas& out) {
  out.add(attrs_of(call).out_dtype, {attrs_of(call).rows, call[3].sizes()[2]});
}
void infer_multiply_transposed(const OpCall& call, OutputMetas& out) {
  out.add(attrs_of(call).out_dtype, {call[2].sizes()[0], call[0].sizes()[1], call[3].sizes()[1]});
}

// ---- the ops
// -------------------------------------------------------------------------------------------------------------------

constexpr char kNoGradient[] = "it writes a receive buffer; the dispatcher that calls it records the gradient";

Cost cost_of_rows(const OpCall& call) {
  return {.bytes = static_cast<double>(call[call.inputs.size() == 4 ? 2 : 4].nbytes())};
}

Cost cost_of_products(const OpCall& call) {
  const double rows = static_cast<double>(attrs_of(call).rows), d = static_cast<double>(call[0].extents()[1]),
               f = static_cast<double>(call[3].extents().back());
  return {2.0 * rows * d * f, rows * (d + f) * static_cast<double>(itemsize(call[0].dtype()))};
}

constexpr OpDef move_of_tokens(const char* name, void (*kernel)(const OpCall&, std::span<const Tensor>)) {
  return {.name = name,
          .num_inputs = 7,
          .num_outputs = 4,
          .writes = {0, 1, 2, 3},
          .infer = infer_tokens,
          .gradient = {.none = kNoGradient},
          .ordered = true,
          .kernel = kernel,
          .cost = cost_of_rows};
}
constexpr OpDef move_of_rows(const char* name, void (*kernel)(const OpCall&, std::span<const Tensor>)) {
  return {.name = name,
          .num_inputs = 4,
          .num_outputs = 2,
          .writes = {0, 1, -1, -1},
          .infer = infer_rows,
          .gradient = {.none = kNoGradient},
          .ordered = true,
          .kernel = kernel,
          .cost = cost_of_rows};
}
constexpr OpDef product_of_published(const char* name, void (*infer)(const OpCall&, OutputMetas&),
                                     void (*kernel)(const OpCall&, std::span<const Tensor>)) {
  return {.name = name,
          .num_inputs = 5,
          .infer = infer,
          .gradient = {.none = "the dispatcher that calls it records the gradient"},
          .kernel = kernel,
          .recompute = Recompute::never,
          .cost = cost_of_products};
}

const OpDef kStoreTokens = move_of_tokens("store_tokens", store_tokens_kernel);
const OpDef kPublishTokens = move_of_tokens("publish_tokens", publish_tokens_kernel);
const OpDef kStoreAtExperts = move_of_rows("store_at_experts", store_at_experts_kernel);
const OpDef kStoreAtTokens = move_of_rows("store_at_tokens", store_at_tokens_kernel);
const OpDef kMultiplyPublished = product_of_published(
    "multiply_published", infer_multiply,
    [](const OpCall& call, std::span<const Tensor> outputs) { multiply(call, outputs[0], false); });
const OpDef kMultiplyPublishedTransposed =
    product_of_published("multiply_published_transposed", infer_multiply_transposed,
                         [](const OpCall& call, std::span<const Tensor> outputs) { multiply(call, outputs[0], true); });

// Whoever iterates over all ops meets these, too.
const OpDef* const kOps[] = {&kStoreTokens,   &kPublishTokens,     &kStoreAtExperts,
                             &kStoreAtTokens, &kMultiplyPublished, &kMultiplyPublishedTransposed};
[[maybe_unused]] const bool joined = (join_op_table(kOps), true);

void call_move(const OpDef& op, const Attrs& attrs, std::span<const Tensor> inputs) {
  Tensor outputs[kMaxOutputs];
  apply(op, inputs, attrs, std::span(outputs, static_cast<size_t>(op.num_outputs)));
}

}  // namespace

void store_tokens(const Exchange& exchange, const Tensor& rows_RD, const Tensor& lists, const Tensor& freed,
                  const Tensor& mailbox_WE, const Tensor& x_TD, const Tensor& slot_of_row_N,
                  const Tensor& tokens_per_expert_E) {
  const Tensor inputs[] = {rows_RD, lists, freed, mailbox_WE, x_TD, slot_of_row_N, tokens_per_expert_E};
  call_move(kStoreTokens, attrs_for(exchange), inputs);
}

void publish_tokens(const Exchange& exchange, const Tensor& tokens, const Tensor& lists, const Tensor& freed,
                    const Tensor& mailbox_WE, const Tensor& x_TD, const Tensor& slot_of_row_N,
                    const Tensor& tokens_per_expert_E) {
  const Tensor inputs[] = {tokens, lists, freed, mailbox_WE, x_TD, slot_of_row_N, tokens_per_expert_E};
  call_move(kPublishTokens, attrs_for(exchange), inputs);
}

void store_at_experts(const Exchange& exchange, const Tensor& target_RD, const Tensor& freed, const Tensor& rows_ND,
                      const Tensor& counts_WE) {
  const Tensor inputs[] = {target_RD, freed, rows_ND, counts_WE};
  call_move(kStoreAtExperts, attrs_for(exchange), inputs);
}

void store_at_tokens(const Exchange& exchange, const Tensor& target_ND, const Tensor& freed, const Tensor& rows_RD,
                     const Tensor& counts_WE) {
  const Tensor inputs[] = {target_ND, freed, rows_RD, counts_WE};
  call_move(kStoreAtTokens, attrs_for(exchange), inputs);
}

Tensor multiply_published(const Exchange& exchange, const Tensor& tokens, const Tensor& positions_R, const Tensor& ends,
                          const Tensor& w, const Tensor& counts_WE, int64_t rows) {
  return call_op(kMultiplyPublished, attrs_for(exchange, rows, promote(tokens.dtype(), w.dtype())), tokens, positions_R,
                 ends, w, counts_WE);
}

Tensor multiply_published_transposed(const Exchange& exchange, const Tensor& tokens, const Tensor& positions_R,
                                     const Tensor& ends, const Tensor& g_RF, const Tensor& counts_WE, DType out) {
  return call_op(kMultiplyPublishedTransposed, attrs_for(exchange, g_RF.extents()[0], out), tokens, positions_R, ends,
                 g_RF, counts_WE);
}

}  // namespace tutti::parallel::expert_rows
