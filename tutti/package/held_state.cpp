#include "tutti/package/held_state.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "tutti/tensor/device_copy.h"
#include "tutti/tensor/host_read.h"
#include "tutti/tensor/lent_memory.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::package_detail {

HeldState::HeldState(std::span<const PackagedState> named, const std::string& function)
    : named_(named.begin(), named.end()) {
  std::set<std::string> names;
  for (const PackagedState& s : named_) {
    const auto refuse = [&](const std::string& why) {
      throw UsageError(fmt::format("package: '{}': the state '{}' {}", function, s.name, why));
    };
    if (s.name.empty() || !names.insert(s.name).second) refuse("has no name of its own");
    if (!s.tensor.defined()) refuse("is an undefined tensor");
    if (wrapper_of(s.tensor) != nullptr) refuse(fmt::format("is {}, which is no plain tensor", describe(s.tensor)));
    if (s.tensor.device() != kCpu || lender_of(s.tensor) != nullptr || !s.tensor.storage()->has_memory() ||
        s.tensor.storage()->is_read_only())
      refuse("has memory that is lent, read-only or on another device");
    if (!s.tensor.is_contiguous()) refuse(fmt::format("is a view with gaps, {}", describe(s.tensor)));
    if (number_of(s.tensor) < 0) storages_.push_back(s.tensor.storage());
  }
  for (const StorageRef& storage : storages_) {
    storage->wait();
    first_.push_back(clone_to(Tensor::over(storage, {storage->nbytes()}, {1}, 0, DType::u8), kCpu));
  }
}

int32_t HeldState::number_of(const Tensor& t) const {
  const auto it = std::find_if(storages_.begin(), storages_.end(),
                               [&](const StorageRef& s) { return s.get() == t.storage().get(); });
  return it == storages_.end() ? -1 : static_cast<int32_t>(it - storages_.begin());
}

void HeldState::restore() const {
  for (size_t i = 0; i < storages_.size(); ++i) {
    if (first_[i].nbytes() > 0)
      std::memcpy(storages_[i]->data(), first_[i].raw_data(), static_cast<size_t>(first_[i].nbytes()));
    storages_[i]->bump_version();
  }
}

std::vector<Tensor> HeldState::copies() const {
  std::vector<Tensor> memory;
  for (const Tensor& t : first_) memory.push_back(clone_to(t, kCpu));
  return memory;
}

std::vector<Tensor> HeldState::tensors() const {
  std::vector<Tensor> tensors;
  for (const PackagedState& s : named_) tensors.push_back(s.tensor);
  return tensors;
}

std::vector<Tensor> HeldState::tensors_in(std::span<const Tensor> memory) const {
  std::vector<Tensor> tensors;
  for (const PackagedState& s : named_) {
    const Tensor& in = memory[static_cast<size_t>(number_of(s.tensor))];
    tensors.push_back(Tensor::over(in.storage(), s.tensor.extents(), contiguous_strides(s.tensor.extents()),
                                   s.tensor.offset(), s.tensor.dtype()));
  }
  return tensors;
}

void HeldState::declare(deploy::Manifest& manifest, ConstantPool& pool) const {
  for (const Tensor& t : first_) manifest.state_memory.push_back(pool.place_of(t));
  for (const PackagedState& s : named_)
    manifest.state.push_back({s.name, s.tensor.dtype(), s.tensor.extents(), number_of(s.tensor),
                              s.tensor.offset() * itemsize(s.tensor.dtype())});
}

}  // namespace tutti::package_detail
