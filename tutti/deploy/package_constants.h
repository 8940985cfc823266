// The constants of an open package: those of its file, or what the program has put in their places since.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tutti/deploy/manifest.h"
#include "tutti/tensor/tensor.h"

namespace tutti::deploy {

// What a named constant shall be.
struct NewConstant {
  std::string name;
  Tensor value;
};

// May be used by any number of threads at once.
class PackageConstants {
 public:
  using Set = std::vector<Tensor>;  // the bytes of each item of Manifest::constants

  // `of_file` are the bytes on the mapped file. The manifest must outlive the object.
  PackageConstants(const Manifest& manifest, Set of_file);

  // What a call that begins now reads, for as long as it holds the set.
  std::shared_ptr<const Set> current() const;
  // Replaces all that are named, or none of them: UsageError where a name is unknown or given twice, or a dtype or
  // sizes differ. The values are copied. Calls that are running keep the set with which they began, whose memory is
  // freed when the last of them ends; calls that begin afterwards see all of the new values.
  void set(std::span<const NewConstant> values);

 private:
  const PackageNamedConstant& find(const std::string& name) const;

  const Manifest& manifest_;
  std::mutex setting_;        // held while a new set is made from the last one
  mutable std::mutex mutex_;  // of current_
  std::shared_ptr<const Set> current_;
};

}  // namespace tutti::deploy
