// The tensors of ShardedTables in global coordinates, for checkpoints.
#include <algorithm>

#include "tutti/autograd/tape.h"
#include "tutti/core/hash.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/inplace.h"
#include "tutti/parallel/sharded_tables.h"

namespace tutti::parallel {

std::vector<TensorBox> ShardedTables::boxes() const {
  std::vector<TensorBox> weights, states;
  for (const HeldTable& held : held_) {
    std::vector<TensorBox> of_table = held.boxes();
    weights.push_back(of_table[0]);
    states.insert(states.end(), of_table.begin() + 1, of_table.end());
  }
  weights.insert(weights.end(), states.begin(), states.end());
  return weights;
}

namespace {

// The box within a whole tensor.
Tensor narrowed(const Tensor& whole, const TensorBox& box) {
  int64_t offset = whole.offset();
  for (size_t d = 0; d < box.first.size(); ++d) offset += box.first[d] * whole.strides()[d];
  return whole.view_as(box.values.extents(), whole.strides(), offset);
}

}  // namespace

nn::StateDict ShardedTables::gathered() const {
  TUTTI_CHECK(has_values(), "ShardedTables::gathered: the tables have no values yet; call initialize() or load()");
  const NoGradScope no_grad;
  const std::vector<TensorBox> mine = boxes();
  ParcelWriter writer;
  for (const TensorBox& box : mine) {
    const bool writes = box.values.defined() && !box.is_copy;
    writer.put(static_cast<int64_t>(writes ? box.values.ndim() : -1));
    if (!writes) continue;
    for (size_t d = 0; d < box.first.size(); ++d) {
      writer.put(box.first[d]);
      writer.put(box.values.extents()[d]);
    }
    const Tensor dense = to_contiguous(box.values);
    writer.put(static_cast<const char*>(dense.raw_data()), dense.nbytes());
  }
  const std::string own(bytes_of(writer.take()));
  const std::vector<std::string> all = ranks() == 1 ? std::vector{own} : group_->all_gather_bytes(own);
  nn::StateDict state;
  for (const TensorBox& box : mine) state.emplace_back(box.name, Tensor::empty(box.sizes, box.dtype));
  for (const std::string& bytes : all) {
    ParcelReader reader("ShardedTables::gathered", bytes);
    for (size_t i = 0; i < mine.size(); ++i) {
      const auto ndim = reader.get<int64_t>();
      if (ndim < 0) continue;
      TUTTI_CHECK_ENV(ndim == mine[i].sizes.ndim(), "ShardedTables::gathered: a rank has sent {} dims of {}", ndim,
                      mine[i].name);
      TensorBox box = mine[i];
      Extents sizes = box.sizes;
      bool fits = true;
      for (size_t d = 0; d < sizes.size(); ++d) {
        box.first[d] = reader.get<int64_t>();
        sizes[d] = reader.get<int64_t>();
        fits = fits && box.first[d] >= 0 && sizes[d] >= 0 && box.first[d] <= box.sizes[d] - sizes[d];
      }
      TUTTI_CHECK_ENV(fits, "ShardedTables::gathered: a rank has sent a part that is not within {}", mine[i].name);
      box.values = Tensor::empty(sizes, box.dtype);
      reader.get(static_cast<char*>(box.values.raw_data()), box.values.nbytes());
      copy_(narrowed(state[i].second, box), box.values);
    }
  }
  state.emplace_back("state.iter", Tensor::of<int64_t>({steps_}, {}));
  return state;
}

void ShardedTables::load(const nn::StateDict& whole) {
  const NoGradScope no_grad;
  const std::vector<TensorBox> mine = boxes();
  const bool has_state = whole.size() > tables_.size();
  const auto find = [&](const std::string& name) {
    const auto it = std::find_if(whole.begin(), whole.end(), [&](const auto& entry) { return entry.first == name; });
    return it == whole.end() ? nullptr : &it->second;
  };
  size_t expected = 0;
  for (const TensorBox& box : mine) {
    if (!has_state && box.is_state) continue;
    const Tensor* const given = find(box.name);
    TUTTI_CHECK(given != nullptr, "ShardedTables::load: there is no {} among the {} tensors", box.name, whole.size());
    TUTTI_CHECK(given->extents() == box.sizes && given->dtype() == box.dtype,
                "ShardedTables::load: {} is {}; expected {} {}", box.name, describe(*given), name_of(box.dtype),
                box.sizes);
    ++expected;
  }
  int64_t steps = 0;
  if (has_state) {
    const Tensor* const iter = find("state.iter");
    TUTTI_CHECK(iter != nullptr && iter->dtype() == DType::i64 && iter->numel() == 1 && iter->item_int() >= 0,
                "ShardedTables::load: state.iter is {}; expected the number of steps, an i64 of 0 or more",
                iter == nullptr ? "missing" : describe(*iter));
    steps = iter->item_int();
    ++expected;
  }
  TUTTI_CHECK(whole.size() == expected, "ShardedTables::load: there are {} tensors; the tables have {}", whole.size(),
              expected);
  for (const TensorBox& box : mine) {
    if (!box.values.defined()) continue;
    if (!has_state && box.is_state) zero_(box.values);
    else copy_(box.values, narrowed(*find(box.name), box));
  }
  values_are_those_after(steps);
}

void ShardedTables::values_are_those_after(int64_t steps) {
  TUTTI_CHECK(steps >= 0, "ShardedTables: values after {} steps; expected 0 or more", steps);
  steps_ = steps;
  values_ = static_cast<int64_t>(hash64(fmt::format("{} {}", values_, steps)) | 1);
  abandon_step();
}

}  // namespace tutti::parallel
