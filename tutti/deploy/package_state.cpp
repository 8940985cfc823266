#include "tutti/deploy/package_state.h"

#include <algorithm>
#include <cstring>

#include "tutti/tensor/device_copy.h"
#include "tutti/tensor/host_read.h"

namespace tutti::deploy {

PackageState::PackageState(std::string function, std::shared_ptr<const SectionFile> file, const Manifest& manifest)
    : function_(std::move(function)), file_(std::move(file)), tensors_(manifest.state) {
  const Section* section = file_->find(SectionKind::constants);
  for (const PackageConstant& c : manifest.state_memory) {
    memory_.push_back(Tensor::empty({static_cast<int64_t>(c.nbytes)}, DType::u8));
    if (c.nbytes > 0) std::memcpy(memory_.back().raw_data(), section->bytes.data() + c.first, c.nbytes);
  }
}

std::unique_lock<std::mutex> PackageState::claim() const {
  std::unique_lock lock(mutex_, std::try_to_lock);
  TUTTI_CHECK(lock.owns_lock(),
              "{}: another thread works on this state; wait for its call to end, or make a state for each thread",
              function_);
  return lock;
}

Tensor PackageState::view_of(std::string_view name) const {
  const auto it = std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& t) { return t.name == name; });
  if (it == tensors_.end()) {
    std::string names;
    for (const PackageStateTensor& t : tensors_) names += (names.empty() ? "" : ", ") + t.name;
    throw UsageError(
        fmt::format("{}: its state has no tensor '{}'; it has {}", function_, name, names.empty() ? "none" : names));
  }
  return Tensor::over(memory_[static_cast<size_t>(it->memory)].storage(), it->sizes, contiguous_strides(it->sizes),
                      it->first / itemsize(it->dtype), it->dtype);
}

Tensor PackageState::read(std::string_view name) const {
  const std::unique_lock lock = claim();
  return clone_to(view_of(name), kCpu);
}

void PackageState::write(std::string_view name, const Tensor& values) {
  const std::unique_lock lock = claim();
  const Tensor view = view_of(name);
  TUTTI_CHECK(values.dtype() == view.dtype() && values.extents() == view.extents(),
              "{}: '{}' of its state is {} {}, and cannot be {} {}", function_, name, name_of(view.dtype()),
              view.extents(), name_of(values.dtype()), values.extents());
  before_host_read(values);
  const Tensor dense = to_contiguous(values);
  if (view.nbytes() > 0)
    std::memcpy(static_cast<char*>(view.raw_data()), dense.raw_data(), static_cast<size_t>(view.nbytes()));
}

}  // namespace tutti::deploy
