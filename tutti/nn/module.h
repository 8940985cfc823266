// Module: a named tree of parameters, buffers and submodules.
//
// A module is constructed with uninitialized parameters and filled by initialize(). Every value is a pure function of the
// seed, the parameter's full name and the element's global index, whatever the layout (numerics contract, N6).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/tensor/tensor.h"

namespace tutti::nn {

struct Init {
  enum class Kind : uint8_t { zeros, ones, normal } kind = Kind::zeros;
  double std = 0.0;
  static Init normal(double std) { return {Kind::normal, std}; }
  static Init ones() { return {Kind::ones, 0.0}; }
};

struct NamedTensor {
  std::string name;  // full path, "model.layers.0.mlp.up_proj.weight"
  Tensor tensor;
  Init init;
};

class Module {
 public:
  virtual ~Module() = default;
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // All parameters of this module and its submodules in registration order; a tensor that is registered twice (a tied weight)
  // appears once, under its first name.
  std::vector<NamedTensor> named_parameters(const std::string& prefix = "") const;
  // All buffers. They are not trained and not counted as parameters.
  std::vector<NamedTensor> named_buffers(const std::string& prefix = "") const;
  int64_t parameter_count() const;

 protected:
  // Registers a parameter that requires grad.
  Tensor add_parameter(std::string name, const Extents& sizes, Init init, DType dtype = DType::f32);
  Tensor add_buffer(std::string name, Tensor buffer);
  // `child` must outlive this module; usually it is a member.
  void add_module(std::string name, Module& child);

 private:
  struct Child {
    std::string name;
    Module* module;
  };
  void collect(const std::string& prefix, const std::vector<NamedTensor> Module::* list, std::vector<NamedTensor>& out) const;
  std::vector<NamedTensor> parameters_, buffers_;
  std::vector<Child> children_;
};

// Fills every parameter according to its Init, with random numbers keyed by the rank's seed (seed_all) and the parameter's name.
void initialize(Module& module);

}  // namespace tutti::nn
