// The C interface over Package: structs become tensors, exceptions become codes.
#include "tutti/deploy/tutti_runtime.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "tutti/deploy/c_interface.h"
#include "tutti/deploy/last_error.h"
#include "tutti/deploy/package.h"
#include "tutti/deploy/package_error.h"
#include "tutti/runtime/cancellation.h"

using tutti::DType;
using tutti::Extents;
using tutti::Tensor;
using tutti::deploy::LastError;
using tutti::deploy::Package;
using tutti::deploy::PackageError;
using tutti::deploy::c_interface::hand_out;

static_assert(TUTTI_MOST_DIMS == tutti::kMaxDims);
static_assert(TUTTI_F64 == static_cast<int>(DType::f64) && TUTTI_F32 == static_cast<int>(DType::f32) &&
              TUTTI_BF16 == static_cast<int>(DType::bf16) && TUTTI_F16 == static_cast<int>(DType::f16) &&
              TUTTI_F8E4M3FN == static_cast<int>(DType::f8e4m3fn) && TUTTI_F8E5M2 == static_cast<int>(DType::f8e5m2) &&
              TUTTI_I64 == static_cast<int>(DType::i64) && TUTTI_I32 == static_cast<int>(DType::i32) &&
              TUTTI_I16 == static_cast<int>(DType::i16) && TUTTI_I8 == static_cast<int>(DType::i8) &&
              TUTTI_U8 == static_cast<int>(DType::u8) && TUTTI_BOOL == static_cast<int>(DType::boolean) &&
              TUTTI_BOOL + 1 == tutti::kNumDTypes);

struct tutti_package {
  std::shared_ptr<Package> opened;
};

namespace {

LastError& last_error() {
  thread_local LastError last;
  return last;
}
tutti_code keep(tutti_code code, const char* text) noexcept { return last_error().keep(code, text); }

tutti_code code_of(PackageError::Kind kind) {
  constexpr tutti_code kCodes[] = {TUTTI_FILE, TUTTI_DAMAGED, TUTTI_OTHER_VERSION, TUTTI_PROCESSOR};
  return kCodes[static_cast<size_t>(kind)];
}

// An error whose code somebody else has chosen.
class CodedError : public tutti::EnvironmentError {
 public:
  CodedError(tutti_code code, const std::string& text) : EnvironmentError(text), code(code) {}
  const tutti_code code;
};

template <class Fn>
tutti_code guarded(Fn fn) noexcept {
  const tutti::CancellationOff until_it_returns;
  try {
    fn();
    return TUTTI_OK;
  } catch (const CodedError& e) {
    return keep(e.code, e.what());
  } catch (const PackageError& e) {
    return keep(code_of(e.kind), e.what());
  } catch (const tutti::UsageError& e) {
    return keep(TUTTI_USAGE, e.what());
  } catch (const tutti::EnvironmentError& e) {
    return keep(TUTTI_ENVIRONMENT, e.what());
  } catch (const std::bad_alloc&) {
    return keep(TUTTI_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return keep(TUTTI_INTERNAL, e.what());
  } catch (...) {
    return keep(TUTTI_INTERNAL, "an error of an unknown kind");
  }
}

void refuse_null(const void* pointer, const char* what) { TUTTI_CHECK(pointer != nullptr, "{} is NULL", what); }

Extents extents_of(const tutti_tensor& t, const char* what, int32_t i) {
  TUTTI_CHECK(t.ndim >= 0 && t.ndim <= TUTTI_MOST_DIMS, "{} {} has {} dims; tensors have up to {}", what, i, t.ndim,
              TUTTI_MOST_DIMS);
  Extents extents;
  for (int32_t d = 0; d < t.ndim; ++d) {
    TUTTI_CHECK(t.sizes[d] >= 0, "{} {}, dim {} has size {}", what, i, d, t.sizes[d]);
    extents.push_back(t.sizes[d]);
  }
  return extents;
}

DType dtype_of(const tutti_tensor& t, const char* what, int32_t i) {
  int number = 0;  // what C gives may be no value of the enum, which C++ must not read as one
  static_assert(sizeof number == sizeof t.dtype);
  std::memcpy(&number, &t.dtype, sizeof number);
  TUTTI_CHECK(number >= TUTTI_F64 && number <= TUTTI_BOOL, "{} {} has dtype {}, which is none of tutti_dtype", what, i,
              number);
  return static_cast<DType>(number);
}

std::vector<Tensor> tensors_of(const tutti_tensor* list, int32_t count, const char* what) {
  TUTTI_CHECK(count >= 0, "the number of {}s is {}", what, count);
  if (count > 0) refuse_null(list, what);
  std::vector<Tensor> tensors;
  for (int32_t i = 0; i < count; ++i) {
    const Extents extents = extents_of(list[i], what, i);
    const DType dtype = dtype_of(list[i], what, i);
    TUTTI_CHECK(list[i].data != nullptr || numel_of(extents) == 0, "{} {} has no data", what, i);
    TUTTI_CHECK(reinterpret_cast<uintptr_t>(list[i].data) % static_cast<uintptr_t>(itemsize(dtype)) == 0,
                "the data of {} {} are not aligned to {} bytes", what, i, itemsize(dtype));
    tensors.push_back(Tensor::from_memory(list[i].data, extents, dtype, [] {}));
  }
  return tensors;
}

const Package& package_of(const tutti_package* package) {
  refuse_null(package, "the package");
  return *package->opened;
}

}  // namespace

int32_t tutti_runtime_version(void) { return TUTTI_RUNTIME_VERSION; }

const tutti_error* tutti_last_error(void) { return last_error().get(); }

tutti_code tutti_package_open(const char* path, const tutti_open_options* options, tutti_package** package) {
  return guarded([&] {
    refuse_null(path, "path");
    refuse_null(package, "package");
    *package = nullptr;
    tutti_open_options known{};  // what this library knows of the caller's struct
    if (options != nullptr) {
      TUTTI_CHECK(options->struct_size >= sizeof(size_t), "options->struct_size is {}; set it to sizeof *options",
                  options->struct_size);
      std::memcpy(&known, options, std::min(options->struct_size, sizeof known));
    }
    auto opened = std::make_unique<tutti_package>();
    opened->opened = Package::open(path, Package::Purpose::run, known.threads);
    *package = opened.release();
  });
}

void tutti_package_close(tutti_package* package) { delete package; }

tutti_code tutti_package_describe(const tutti_package* package, tutti_package_info* info) {
  return guarded([&] {
    const auto& manifest = package_of(package).manifest();
    hand_out(tutti_package_info{.struct_size = 0,
                                .function = manifest.function.c_str(),
                                .made_by = manifest.made_by.c_str(),
                                .inputs = static_cast<int32_t>(manifest.inputs.size()),
                                .outputs = static_cast<int32_t>(manifest.outputs.size()),
                                .combinations = manifest.points(),
                                .file_bytes = static_cast<int64_t>(package->opened->file().nbytes()),
                                .constant_bytes = static_cast<int64_t>(manifest.constant_nbytes)},
             info);
  });
}

tutti_code tutti_package_input(const tutti_package* package, int32_t index, tutti_input_info* info) {
  return guarded([&] {
    const auto& manifest = package_of(package).manifest();
    TUTTI_CHECK(index >= 0 && static_cast<size_t>(index) < manifest.inputs.size(), "there is no input {}, but {}",
                index, manifest.inputs.size());
    const auto& input = manifest.inputs[static_cast<size_t>(index)];
    tutti_input_info filled{};
    filled.dtype = static_cast<tutti_dtype>(input.dtype);
    filled.ndim = static_cast<int32_t>(input.dims.size());
    for (size_t d = 0; d < input.dims.size(); ++d) {
      const auto& dim = input.dims[d];
      const auto* size = dim.symbol < 0 ? nullptr : &manifest.sizes[static_cast<size_t>(dim.symbol)];
      filled.least[d] = size ? size->least : dim.size;
      filled.most[d] = size ? size->most : dim.size;
      filled.step[d] = size ? size->step : 1;
      filled.name[d] = size ? size->name.c_str() : nullptr;
    }
    filled.is_written = input.is_written ? 1 : 0;
    hand_out(filled, info);
  });
}

tutti_code tutti_package_outputs(const tutti_package* package, const tutti_tensor* inputs, int32_t num_inputs,
                                 tutti_tensor* outputs, int32_t num_outputs) {
  return guarded([&] {
    const Package& opened = package_of(package);
    const auto& dtypes = opened.manifest().outputs;
    TUTTI_CHECK(num_outputs >= 0 && static_cast<size_t>(num_outputs) == dtypes.size(),
                "{} outputs are given, there are {}", num_outputs, dtypes.size());
    TUTTI_CHECK(num_inputs >= 0, "the number of inputs is {}", num_inputs);
    if (num_inputs > 0) refuse_null(inputs, "inputs");
    refuse_null(outputs, "outputs");
    std::vector<Extents> extents;
    std::vector<DType> input_dtypes;
    for (int32_t i = 0; i < num_inputs; ++i) {
      extents.push_back(extents_of(inputs[i], "input", i));
      input_dtypes.push_back(dtype_of(inputs[i], "input", i));
    }
    opened.manifest().point_of(extents, input_dtypes);  // refuses what is not as declared
    const std::vector<Extents> made = opened.output_extents(extents);
    for (size_t k = 0; k < made.size(); ++k) {
      outputs[k].dtype = static_cast<tutti_dtype>(dtypes[k]);
      outputs[k].ndim = made[k].ndim();
      for (int d = 0; d < made[k].ndim(); ++d) outputs[k].sizes[d] = made[k][static_cast<size_t>(d)];
    }
  });
}

tutti_code tutti_package_run(const tutti_package* package, const tutti_tensor* inputs, int32_t num_inputs,
                             const tutti_tensor* outputs, int32_t num_outputs) {
  return guarded([&] {
    const Package& opened = package_of(package);
    TUTTI_CHECK(num_outputs >= 0 && static_cast<size_t>(num_outputs) == opened.manifest().outputs.size(),
                "{} outputs are given, there are {}", num_outputs, opened.manifest().outputs.size());
    opened.run(tensors_of(inputs, num_inputs, "input"), tensors_of(outputs, num_outputs, "output"));
  });
}

namespace tutti::deploy::c_interface {

tutti_code guarded(FunctionRef<void()> fn) noexcept { return ::guarded(fn); }
void fail(tutti_code code, const std::string& text) { throw CodedError(code, text); }
const Package& package_of(const tutti_package* package) { return ::package_of(package); }
Package& package_to_change(tutti_package* package) {
  ::refuse_null(package, "the package");
  return *package->opened;
}
void refuse_null(const void* pointer, const char* what) { ::refuse_null(pointer, what); }
std::vector<Tensor> tensors_of(const tutti_tensor* list, int32_t count, const char* what) {
  return ::tensors_of(list, count, what);
}

}  // namespace tutti::deploy::c_interface
