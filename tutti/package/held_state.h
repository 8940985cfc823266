// The state of a package while it is made: tensors that the function holds and may change.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tutti/deploy/manifest.h"
#include "tutti/package/constant_pool.h"
#include "tutti/package/package.h"

namespace tutti::package_detail {

// Puts the values that the tensors had at first back when it is destroyed.
class HeldState {
 public:
  // UsageError for tensors that cannot be state, naming them.
  HeldState(std::span<const PackagedState> named, const std::string& function);
  ~HeldState() { restore(); }
  HeldState(const HeldState&) = delete;
  HeldState& operator=(const HeldState&) = delete;

  bool empty() const { return named_.empty(); }
  // The number of the memory of `t` among that of the state; -1: it is none of it.
  int32_t number_of(const Tensor& t) const;
  // Puts the values that the tensors had at first back.
  void restore() const;
  // Memory with the values that the tensors had at first, one per number.
  std::vector<Tensor> copies() const;
  // The named tensors, or what stands for them in `memory`.
  std::vector<Tensor> tensors() const;
  std::vector<Tensor> tensors_in(std::span<const Tensor> memory) const;
  // Adds them to a manifest, and their first values to the section of constants.
  void declare(deploy::Manifest& manifest, ConstantPool& pool) const;

 private:
  const std::vector<PackagedState> named_;
  std::vector<StorageRef> storages_;
  std::vector<Tensor> first_;  // copies of them, u8
};

}  // namespace tutti::package_detail
