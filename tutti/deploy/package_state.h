// PackageState: the tensors that the function of a package changes from call to call, such as parameters and moments of
// a training step.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/deploy/manifest.h"
#include "tutti/deploy/section_file.h"
#include "tutti/tensor/tensor.h"

namespace tutti::deploy {

// Memory of its own, which holds the values of the file at first; see Package::new_state(). It belongs to one call at a
// time: a call of run(), read() or write() that finds another one under way in another thread is a UsageError and
// changes nothing. Different states of one package do not meet.
class PackageState {
 public:
  std::span<const PackageStateTensor> tensors() const { return tensors_; }
  // A copy of the tensor's values. UsageError, with the names that there are, for another name.
  Tensor read(std::string_view name) const;
  // Replaces the tensor's values. UsageError for another name, dtype or other sizes.
  void write(std::string_view name, const Tensor& values);

 private:
  friend class Package;
  PackageState(std::string function, std::shared_ptr<const SectionFile> file, const Manifest& manifest);
  // Throws unless no other call works on the state.
  std::unique_lock<std::mutex> claim() const;
  Tensor view_of(std::string_view name) const;

  const std::string function_;
  const std::shared_ptr<const SectionFile> file_;
  const std::vector<PackageStateTensor> tensors_;
  std::vector<Tensor> memory_;  // per item of Manifest::state_memory
  mutable std::mutex mutex_;
};

}  // namespace tutti::deploy
