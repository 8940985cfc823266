#include "tutti/package/constant_pool.h"

#include "tutti/core/blake2b.h"
#include "tutti/tensor/host_read.h"

namespace tutti::package_detail {

int32_t ConstantPool::number_of(const Tensor& t) {
  const auto [it, is_new] = of_storages_.emplace(t.storage().get(), static_cast<int32_t>(constants_.size()));
  if (!is_new) return it->second;
  kept_.push_back(t.storage());
  constants_.push_back(place_of(t));
  return it->second;
}

deploy::PackageConstant ConstantPool::place_of(const Tensor& t) {
  before_host_read(t);
  const std::string_view contents(static_cast<const char*>(t.storage()->data()),
                                  static_cast<size_t>(t.storage()->nbytes()));
  nbytes_before_ += t.storage()->nbytes();
  Blake2b hash(32);
  hash.add(contents);
  const auto [place, is_other] = places_.emplace(hash.finish(), 0);
  if (is_other) {
    // Large ones begin at pages of their own, so that processes share them; small ones at cache lines.
    const size_t alignment = contents.size() >= 4096 ? 4096 : 64;
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    place->second = bytes_.size();
    bytes_ += contents;
  }
  return {place->second, contents.size()};
}

int32_t ConstantPool::find(const Tensor& t) const {
  const auto it = of_storages_.find(t.storage().get());
  return it == of_storages_.end() ? -1 : it->second;
}

}  // namespace tutti::package_detail
