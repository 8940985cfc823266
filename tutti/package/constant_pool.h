// The constants of a package: the bytes of storages, equal ones once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tutti/deploy/manifest.h"
#include "tutti/tensor/tensor.h"

namespace tutti::package_detail {

class ConstantPool {
 public:
  // The number of the constant that the storage of `t` is.
  int32_t number_of(const Tensor& t);
  // The same of one that has a number; -1: it has none.
  int32_t find(const Tensor& t) const;
  // Where the bytes of the storage of `t` are in the section, for what is no constant.
  deploy::PackageConstant place_of(const Tensor& t);
  const std::vector<deploy::PackageConstant>& constants() const { return constants_; }
  const std::string& bytes() const { return bytes_; }  // of the section
  int64_t nbytes_before() const { return nbytes_before_; }

 private:
  std::map<const Storage*, int32_t> of_storages_;
  std::vector<StorageRef> kept_;            // so that no other storage comes to lie at its address
  std::map<std::string, uint64_t> places_;  // by a hash of the bytes
  std::vector<deploy::PackageConstant> constants_;
  std::string bytes_;
  int64_t nbytes_before_ = 0;
};

}  // namespace tutti::package_detail
