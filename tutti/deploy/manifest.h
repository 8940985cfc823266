// What a package says about itself, before anything of it is used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/codegen/cpu_target.h"
#include "tutti/core/dtype.h"
#include "tutti/core/shape.h"

namespace tutti::deploy {

// A size that calls may choose: least, least + step, ..., most.
struct PackageSize {
  std::string name;
  int64_t least = 1, most = 1, step = 1;
  // A size before it: this one is above its least only where that one is at its own. -1: none.
  int32_t apart_from = -1;
  int64_t count() const { return (most - least) / step + 1; }
};

struct PackageDim {
  int32_t symbol = -1;  // of Manifest::sizes; -1: always `size`
  int64_t size = 0;
};

struct PackageArgument {
  DType dtype = DType::f32;
  std::vector<PackageDim> dims;
  bool is_written = false;  // calls write it in place
};

struct PackageOp {
  std::string name;
  std::string attrs;    // the type of the options of its calls; "": they have none
  uint64_t schema = 0;  // see op_schema.h
};

// A constant in the section of constants.
struct PackageConstant {
  uint64_t first = 0, nbytes = 0;
};

// A constant that programs may replace: a dense tensor within one of the constants.
struct PackageNamedConstant {
  std::string name;
  DType dtype = DType::f32;
  Extents sizes;
  int32_t constant = 0;  // of Manifest::constants
  uint64_t first = 0;    // bytes from its start
  int64_t nbytes() const { return numel_of(sizes) * itemsize(dtype); }
};

// A tensor of the state, dense in memory that others of the state may share.
struct PackageStateTensor {
  std::string name;
  DType dtype = DType::f32;
  Extents sizes;
  int32_t memory = 0;  // of Manifest::state_memory
  int64_t first = 0;   // bytes from its start
};

inline constexpr size_t kTogetherBytes = 32;

// A group of ranks that the function communicates in.
struct PackageGroup {
  std::string name;  // in the plans
  int32_t ranks = 1;
  int32_t rank = -1;     // whose file this is; -1: that of each of them
  std::string together;  // kTogetherBytes that the files of all ranks have in common, and no others
};

struct Manifest {
  std::string function;
  std::string made_by;  // the version of Tutti
  int32_t numerics_version = 0;
  uint64_t generator = 0;  // codegen::generator_sources()
  std::vector<PackageSize> sizes;
  std::vector<PackageArgument> inputs;
  std::vector<DType> outputs;
  std::vector<PackageOp> ops;              // that are called
  std::vector<codegen::CpuTarget> levels;  // processors that there is code for
  std::vector<DType> library_dtypes;       // of the operands of calls with kernels that are chosen while they run
  std::vector<PackageConstant> constants;
  std::vector<PackageNamedConstant> named_constants;
  uint64_t constant_nbytes = 0;               // of all constants, before equal ones were put together
  std::vector<PackageConstant> state_memory;  // its first contents
  std::vector<PackageStateTensor> state;
  std::vector<PackageGroup> groups;

  std::string to_bytes() const;
  // PackageError when the bytes are none of a manifest.
  static Manifest of_bytes(std::string_view bytes);

  // Number of combinations of sizes that may occur; a point is one of them.
  int64_t points() const;
  std::vector<int64_t> sizes_of(int64_t point) const;
  // UsageError that names the argument, the dim and its bounds where the arguments are not as declared. extents,
  // dtypes: of the arguments.
  int64_t point_of(std::span<const Extents> extents, std::span<const DType> dtypes) const;
  // The sizes of an input at a point.
  Extents extents_of(const PackageArgument& input, std::span<const int64_t> sizes) const;

 private:
  // The size that is apart from this one; null: none.
  const PackageSize* partner_of(size_t size) const;
};

// "AVX2, FMA, BMI2": the features of a processor that code of the level needs.
const char* features_of(codegen::CpuTarget level);

}  // namespace tutti::deploy
