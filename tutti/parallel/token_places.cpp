#include "tutti/parallel/token_places.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/ops/engine/op_rooms.h"
#include "tutti/ops/indexing/indices.h"

namespace tutti::parallel {

TokenPlaces::TokenPlaces(const char* dispatcher, std::shared_ptr<comm::ProcessGroup> group, int64_t experts,
                         int64_t max_tokens)
    : dispatcher_(dispatcher), group_(std::move(group)), experts_(experts), max_tokens_(max_tokens) {}

SymInt TokenPlaces::most(const SymInt& T, const SymInt& K, const SymInt& most_tokens) const {
  const SymInt most = max_tokens_ > 0 ? SymInt(max_tokens_) : most_tokens;
  TUTTI_CHECK(T <= most, "{}: {} tokens, and max_tokens is {}", dispatcher_, T, most);
  // Without a common numbering, rows would come to experts of others.
  const std::array<int64_t, 3> sizes{most.value(), K.value(), experts_};
  if (sizes == agreed_) return most;
  try {
    group_->barrier({.agreement = hash64(sizes.data(), sizeof sizes, 1)});
  } catch (const UsageError& error) {
    throw UsageError(
        fmt::format("{}: rank {} of group '{}' has at most {} tokens with {} experts each, of {}, and others have "
                    "other numbers; give all ranks as many "
                    "tokens, or set max_tokens: {}",
                    dispatcher_, group_->rank(), group_->name(), most, K, experts_, error.what()));
  }
  agreed_ = sizes;
  return most;
}

SymInt TokenPlaces::stride(const SymInt& most, int64_t grain) { return floordiv(most + (grain - 1), grain) * grain; }

namespace {

void place_ranges(int64_t ranges, int64_t first, int64_t room, std::vector<int64_t>& places) {
  if (ranges == room) {
    for (int64_t i = 0; i < ranges; ++i) places.push_back(first + i);
  } else if (ranges > 0) {
    const int64_t left = room - room / 2;
    place_ranges(ranges - ranges / 2, first, left, places);
    place_ranges(ranges / 2, first + left, room - left, places);
  }
}

}  // namespace

std::vector<int64_t> TokenPlaces::ranges_of_places(int64_t ranges, int64_t room) {
  TUTTI_ASSERT(ranges >= 0 && ranges <= room, "{} ranges of tokens at {} ranges of places", ranges, room);
  std::vector<int64_t> places;
  places.reserve(static_cast<size_t>(ranges));
  place_ranges(ranges, 0, room, places);
  return places;
}

std::string TokenPlaces::differing_grains(std::span<const int64_t> grains) {
  const auto other = std::find_if(grains.begin(), grains.end(), [&](int64_t grain) { return grain != grains[0]; });
  if (other == grains.end()) return "";
  return fmt::format(
      "rank 0 of those that divide experts has ranges of {} tokens, and rank {} of {}; give all ranks the same "
      "numerics.token_grain",
      grains[0], other - grains.begin(), *other);
}

// ---- an op, for compiled steps
// ----------------------------------------------------------------------------------------------------------

namespace {

struct PlaceAttrs {
  int64_t rank = 0, slots_per_token = 1, grain = 1;
  SymInt stride = 0;
  static constexpr auto fields() {
    return field_list(field::number<&PlaceAttrs::rank>("rank"),
                      field::number<&PlaceAttrs::slots_per_token>("slots_per_token"),
                      field::number<&PlaceAttrs::grain>("grain"), field::size<&PlaceAttrs::stride>("stride"));
  }
};

void infer_places(const OpCall& call, OutputMetas& out) { out.add(DType::i64, call[0].sizes()); }

void places_kernel(const OpCall& call, std::span<const Tensor> outputs) {
  const auto& attrs = call.attrs.as<PlaceAttrs>();
  const Tensor slots = to_contiguous(call[0]);
  const int64_t N = slots.numel(), stride = attrs.stride.value();
  const std::vector<int64_t> grains = facets::dense_indices(call[1]);
  const std::string fault = TokenPlaces::differing_grains(grains);
  TUTTI_CHECK(fault.empty(), "{}: {}", call.op.name, fault);
  const PlacesOfTokens places(N / attrs.slots_per_token, stride, attrs.grain);
  auto* out = outputs[0].data<int64_t>();
  for (int64_t i = 0; i < N; ++i)
    out[i] = attrs.rank * stride + places[slots.data<int64_t>()[i] / attrs.slots_per_token];
}

const OpDef kPlacesOfRows = {
    .name = "places_of_rows",
    .num_inputs = 2,
    .infer = infer_places,
    .gradient = {.none = "places are integers"},
    .kernel = places_kernel,
    .cost = [](const OpCall& call) { return Cost{.bytes = 2.0 * static_cast<double>(call[0].nbytes())}; }};

const OpDef* const kOps[] = {&kPlacesOfRows};
[[maybe_unused]] const bool joined = (join_op_table(kOps), true);

}  // namespace

Tensor places_of_rows(const SlotOrder& order, const Tensor& grains_W, int64_t rank, const SymInt& stride,
                      int64_t grain) {
  return call_op(kPlacesOfRows, Attrs::of(PlaceAttrs{rank, order.slots_per_token, grain, stride}), order.slot_of_row,
                 grains_W);
}

}  // namespace tutti::parallel
