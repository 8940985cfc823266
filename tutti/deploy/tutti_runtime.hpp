// The C interface of the runtime of packages for C++17: packages that close themselves, errors as exceptions.
//
//   const tutti::runtime::Package package("mlp.tutti");
//   std::vector<float> x(4 * 16, 1.0f);
//   const std::vector<tutti::runtime::Result> results = package.run({tutti::runtime::tensor(x.data(), {4, 16})});
//   const float* y = results[0].data<float>();
//
// It is all inline over the headers of C, so that a program and the library may be of different compilers.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tutti/deploy/tutti_collectives.h"
#include "tutti/deploy/tutti_constants.h"
#include "tutti/deploy/tutti_profile.h"
#include "tutti/deploy/tutti_runtime.h"

namespace tutti::runtime {

// What a call of the library says when it fails.
class Error : public std::runtime_error {
 public:
  Error(tutti_code code, const char* text) : std::runtime_error(text), code_(code) {}
  tutti_code code() const noexcept { return code_; }

 private:
  tutti_code code_;
};

inline void check(tutti_code code) {
  if (code != TUTTI_OK) throw Error(code, tutti_last_error()->text);
}

// The tutti_dtype of elements of type T. Floats of 8 and 16 bits and booleans have no type of their own here: see the
// other tensor().
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr tutti_dtype value = TUTTI_F32;
};
template <>
struct DTypeOf<double> {
  static constexpr tutti_dtype value = TUTTI_F64;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr tutti_dtype value = TUTTI_I64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr tutti_dtype value = TUTTI_I32;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr tutti_dtype value = TUTTI_I16;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr tutti_dtype value = TUTTI_I8;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr tutti_dtype value = TUTTI_U8;
};

inline int64_t item_bytes(tutti_dtype dtype) {
  switch (dtype) {
    case TUTTI_F64:
    case TUTTI_I64:
      return 8;
    case TUTTI_F32:
    case TUTTI_I32:
      return 4;
    case TUTTI_BF16:
    case TUTTI_F16:
    case TUTTI_I16:
      return 2;
    case TUTTI_F8E4M3FN:
    case TUTTI_F8E5M2:
    case TUTTI_I8:
    case TUTTI_U8:
    case TUTTI_BOOL:
      return 1;
  }
  throw Error(TUTTI_USAGE, "a dtype that this header does not know");
}

inline int64_t num_elements(const tutti_tensor& t) {
  int64_t n = 1;
  for (int32_t d = 0; d < t.ndim; ++d) n *= t.sizes[d];
  return n;
}

// A tensor over memory of the caller, who keeps it alive while it is used.
inline tutti_tensor tensor(const void* data, tutti_dtype dtype, std::initializer_list<int64_t> sizes) {
  if (sizes.size() > TUTTI_MOST_DIMS) throw Error(TUTTI_USAGE, "a tensor has more dims than TUTTI_MOST_DIMS");
  tutti_tensor t{};
  t.data = const_cast<void*>(data);
  t.dtype = dtype;
  for (const int64_t size : sizes) t.sizes[t.ndim++] = size;
  return t;
}
template <class T>
tutti_tensor tensor(const T* data, std::initializer_list<int64_t> sizes) {
  return tensor(data, DTypeOf<T>::value, sizes);
}

// A dense tensor with memory of its own.
class Result {
 public:
  explicit Result(const tutti_tensor& like) : tensor_(like) {
    const size_t words = static_cast<size_t>(nbytes()) / sizeof(uint64_t) + 1;
    memory_.reset(new uint64_t[words]);
    tensor_.data = memory_.get();
  }
  const tutti_tensor& tensor() const noexcept { return tensor_; }
  tutti_dtype dtype() const noexcept { return tensor_.dtype; }
  std::vector<int64_t> sizes() const { return {tensor_.sizes, tensor_.sizes + tensor_.ndim}; }
  int64_t numel() const noexcept { return num_elements(tensor_); }
  int64_t nbytes() const { return numel() * item_bytes(tensor_.dtype); }
  const void* data() const noexcept { return tensor_.data; }
  // TUTTI_USAGE when the elements are of another type.
  template <class T>
  const T* data() const {
    if (DTypeOf<T>::value != tensor_.dtype) throw Error(TUTTI_USAGE, "the result has elements of another type");
    return static_cast<const T*>(tensor_.data);
  }

 private:
  tutti_tensor tensor_;
  std::unique_ptr<uint64_t[]> memory_;
};

// A package that is open. Any number of threads may call its const functions at once.
class Package {
 public:
  explicit Package(const std::string& path, const tutti_open_options* options = nullptr) {
    tutti_package* opened = nullptr;
    check(tutti_package_open(path.c_str(), options, &opened));
    package_.reset(opened);
  }

  tutti_package_info info() const {
    tutti_package_info info{};
    info.struct_size = sizeof info;
    check(tutti_package_describe(get(), &info));
    return info;
  }
  tutti_input_info input(int32_t index) const {
    tutti_input_info info{};
    info.struct_size = sizeof info;
    check(tutti_package_input(get(), index, &info));
    return info;
  }

  // Memory for the results of inputs of these sizes.
  std::vector<Result> make_results(const std::vector<tutti_tensor>& inputs) const {
    std::vector<tutti_tensor> like(static_cast<size_t>(info().outputs));
    check(tutti_package_outputs(get(), inputs.data(), size_of(inputs), like.data(), size_of(like)));
    std::vector<Result> results;
    for (const tutti_tensor& t : like) results.emplace_back(t);
    return results;
  }
  std::vector<Result> run(const std::vector<tutti_tensor>& inputs) const {
    std::vector<Result> results = make_results(inputs);
    std::vector<tutti_tensor> outputs;
    for (const Result& r : results) outputs.push_back(r.tensor());
    run(inputs, outputs);
    return results;
  }
  // Into memory of the caller.
  void run(const std::vector<tutti_tensor>& inputs, const std::vector<tutti_tensor>& outputs) const {
    check(tutti_package_run(get(), inputs.data(), size_of(inputs), outputs.data(), size_of(outputs)));
  }

  // Replaces constants that were named when the package was made, all or none: see tutti_constants.h.
  void set_constants(const std::vector<std::pair<std::string, tutti_tensor>>& constants) {
    std::vector<const char*> names;
    std::vector<tutti_tensor> values;
    for (const auto& [name, value] : constants) names.push_back(name.c_str()), values.push_back(value);
    check(tutti_package_set_constants(get(), names.data(), values.data(), size_of(values)));
  }

  // Gives the function the groups of ranks that it communicates in: see tutti_collectives.h.
  void set_groups(const std::vector<tutti_collectives>& groups) {
    check(tutti_package_set_groups(get(), groups.data(), static_cast<int32_t>(groups.size())));
  }

  // Calls `observer` for each step of the calls that begin while the result lives: see tutti_profile.h. One at a time.
  class Profile {
   public:
    Profile(Package& package, std::function<void(const tutti_step&)> observer)
        : package_(package), observer_(std::move(observer)) {
      check(tutti_package_set_profile(package.get(), &Profile::call, this));
    }
    ~Profile() { tutti_package_set_profile(package_.get(), nullptr, nullptr); }
    Profile(const Profile&) = delete;
    Profile& operator=(const Profile&) = delete;

   private:
    static void call(const tutti_step* step, void* self) { static_cast<Profile*>(self)->observer_(*step); }
    Package& package_;
    std::function<void(const tutti_step&)> observer_;
  };

  // For the functions of C that have no counterpart here.
  tutti_package* get() const noexcept { return package_.get(); }

 private:
  struct Close {
    void operator()(tutti_package* package) const { tutti_package_close(package); }
  };
  static int32_t size_of(const std::vector<tutti_tensor>& list) { return static_cast<int32_t>(list.size()); }
  std::unique_ptr<tutti_package, Close> package_;
};

}  // namespace tutti::runtime
